package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// console is where things are said: data on stdout, messages on stderr.
type console struct {
	out     *printed
	err     io.Writer
	json    bool
	quiet   bool
	verbose bool

	mu      sync.Mutex // messages come from more than one goroutine
	secrets []string
}

// info is for what is good to know. Neither -q nor --json wants it.
func (c *console) info(format string, args ...any) {
	if !c.quiet && !c.json {
		c.warn(format, args...)
	}
}

// detail is what -v adds.
func (c *console) detail(format string, args ...any) {
	if c.verbose {
		c.info(format, args...)
	}
}

// warn is for what must be known.
func (c *console) warn(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.err, "redlatch: "+c.scrub(fmt.Sprintf(format, args...)))
}

// fail says why the program did not do what it was asked for.
func (c *console) fail(f *failure) {
	switch {
	case f.told:
	case c.json:
		c.document(c.err, struct {
			Schema string    `json:"schema"`
			Error  errorJSON `json:"error"`
		}{"redlatch.error/v1", f.json()})
	case c.quiet && f.code == codeHeld:
	default:
		c.warn("%s", f.msg)
		if f.next != "" {
			c.warn("%s", f.next)
		}
	}
}

// document prints one line of JSON.
func (c *console) document(w io.Writer, doc any) {
	text := encode(doc)
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(w, c.scrub(text))
}

func encode(doc any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(doc); err != nil {
		panic(err) // our own types always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// hide keeps a secret out of everything that is said from now on. Nothing should try
// to print one; this is for the error of a client library that does.
func (c *console) hide(secret string) {
	if secret != "" {
		c.secrets = append(c.secrets, secret)
	}
}

func (c *console) scrub(s string) string {
	for _, secret := range c.secrets {
		if len(secret) >= 4 { // a shorter one would blot out ordinary words, and guessing it takes no message
			s = strings.ReplaceAll(s, secret, "xxxxx")
		}
	}
	return s
}
