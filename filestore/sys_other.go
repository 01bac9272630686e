//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filestore

import (
	"errors"
	"os"
	"runtime"
)

// supported says why there is no file store here: its exclusion and its pipes are not
// written for this system yet.
var supported = errors.New("there is no file store on " + runtime.GOOS + " yet; use a server, for example redis://localhost")

func tryLock(*os.File) (bool, error)        { return false, supported }
func tryShared(*os.File) (bool, error)      { return false, supported }
func duplicate(*os.File) (*os.File, error)  { return nil, supported }
func unlock(*os.File) error                 { return supported }
func makePipe(string) (*os.File, error)     { return nil, supported }
func writePipe(path string, message []byte) {}
