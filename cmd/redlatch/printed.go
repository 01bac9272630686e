package main

import "io"

// printed is where data go. Verbs print it in many places, and the program must not say that
// all went well if it could not be written: a full disk behind "redlatch ls > file".
type printed struct {
	w   io.Writer
	err error // the first
}

func (o *printed) Write(text []byte) (int, error) {
	n, err := o.w.Write(text)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}
