//go:build unix

package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Log appends the records of one process to a file of its own. Each is one write at the
// end of the file: what was written is there also when the process is killed next.
type Log struct {
	file *os.File
}

// OpenLog makes the file NAME.log in a directory.
func OpenLog(dir, name string) (*Log, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{file: f}, nil
}

// Add appends a record. It panics if it cannot: a run without its record proves nothing.
func (l *Log) Add(r Record) {
	if _, err := l.file.Write(append(r.line(), '\n')); err != nil {
		panic(err)
	}
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Read returns the records of all logs in a directory, in no order between the files.
// A last line without its end is the work of a kill and is left out.
func Read(dir string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			line, whole := strings.CutSuffix(line, "\n")
			if !whole {
				break
			}
			r, err := parse(line)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
			}
			all = append(all, r)
		}
	}
	return all, nil
}
