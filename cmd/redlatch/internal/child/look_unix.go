//go:build unix

package child

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Look finds the file of a command as execvp does. It is called before the lock is
// taken, so that a typing mistake locks nothing; the error is a *CannotRunError.
func Look(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, lookError(name, runnable(name))
	}
	refused := errNotFound
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if dir == "" {
			dir = "." // as POSIX has it
		}
		file := filepath.Join(dir, name)
		if !strings.Contains(file, "/") {
			file = "./" + file
		}
		switch err := runnable(file); {
		case err == nil && name != "":
			return file, nil
		case errors.Is(err, errNoExecution):
			refused = err // unless a later directory has one that may be
		}
	}
	return "", lookError(name, refused)
}

func lookError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotFound), errors.Is(err, errNoFile):
		return &CannotRunError{Name: name, Code: CodeNotFound, Err: err}
	}
	return &CannotRunError{Name: name, Code: CodeCannotRun, Err: err}
}

func runnable(file string) error {
	info, err := os.Stat(file)
	switch {
	case isNotExist(err):
		return errNoFile
	case err != nil:
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return err
	case info.IsDir():
		return errDirectory
	case unix.Access(file, unix.X_OK) != nil:
		return errNoExecution
	}
	return interpreted(file)
}

// interpreted looks whether the interpreter of a script is there.
func interpreted(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return nil // one that may be executed and not read
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head)
	line, ok := strings.CutPrefix(string(head[:n]), "#!")
	if !ok {
		return nil
	}
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if len(words) == 0 || unix.Access(words[0], unix.X_OK) == nil {
		return nil
	}
	return fmt.Errorf("there is no %q, which its first line asks for", words[0])
}

func isNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}
