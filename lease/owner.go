package lease

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// MaxOwner bounds an owner's text form, in bytes: it stands in the lock's value.
const MaxOwner = 1024

// Owner says to people who claims. It decides nothing: identity is the claim's ID.
type Owner struct {
	Name    string // who: "deploy@web-3"
	Host    string
	PID     int
	Command string // the program's or the child's name, without its arguments
	Note    string
	Labels  map[string]string
}

// String is for messages: deploy@web-3 (pid 4711, "report.sh"). What it prints was
// written by somebody else, so control and direction characters come out quoted.
func (o Owner) String() string {
	name := o.Name
	if name == "" {
		name = "unknown"
	}
	var about []string
	if o.PID != 0 {
		about = append(about, "pid "+strconv.Itoa(o.PID))
	}
	if o.Command != "" {
		about = append(about, strconv.QuoteToGraphic(o.Command))
	}
	if len(about) == 0 {
		return Printable(name)
	}
	return fmt.Sprintf("%s (%s)", Printable(name), strings.Join(about, ", "))
}

// Printable returns s with everything escaped that could move a cursor, change a
// line's direction or pretend to be another line.
func Printable(s string) string {
	q := strconv.QuoteToGraphic(s)
	if q[1:len(q)-1] == s {
		return s
	}
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// Abridged shows enough of a token to recognise it by, and not enough to release its
// lock with: whoever has another library's value can do that.
func Abridged(token string) string {
	const enough = 8
	if len(token) <= enough {
		return Printable(token)
	}
	return Printable(token[:enough]) + "..."
}

// text is the owner in printable ASCII, one line, the form in which it stands in a
// [Token]. Unknown keys are skipped when it is read, so that a newer release may add some.
func (o Owner) text() string {
	v := url.Values{}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	set("u", o.Name)
	set("h", o.Host)
	set("c", o.Command)
	set("n", o.Note)
	if o.PID != 0 {
		v.Set("p", strconv.Itoa(o.PID))
	}
	for k, value := range o.Labels {
		v.Set("l."+k, value)
	}
	return v.Encode()
}

// CheckSize reports an owner that is too long to stand in a lock's value.
func (o Owner) CheckSize() error {
	if n := len(o.text()); n > MaxOwner {
		return fmt.Errorf("owner, labels and note take %d bytes, %d is the most", n, MaxOwner)
	}
	return nil
}

func parseOwner(text string) (Owner, error) {
	v, err := url.ParseQuery(text)
	if err != nil {
		return Owner{}, err
	}
	o := Owner{Name: v.Get("u"), Host: v.Get("h"), Command: v.Get("c"), Note: v.Get("n")}
	if p := v.Get("p"); p != "" {
		if o.PID, err = strconv.Atoi(p); err != nil {
			return Owner{}, err
		}
	}
	for k := range v {
		if label, ok := strings.CutPrefix(k, "l."); ok {
			if o.Labels == nil {
				o.Labels = make(map[string]string)
			}
			o.Labels[label] = v.Get(k)
		}
	}
	return o, nil
}
