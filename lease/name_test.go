package lease

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestNames(t *testing.T) {
	tests := []struct{ name, want string }{
		{"orders/42", ""}, {"a", ""}, {"{}", ""}, {"a b", ""}, {"ü→🔒", ""}, {"a/b/c", ""}, {".", ""}, {"..", ""}, {`"`, ""},
		{strings.Repeat("x", MaxName), ""},
		{"", "empty"},
		{strings.Repeat("x", MaxName+1), "201 bytes"},
		{strings.Repeat("ü", MaxName/2) + "x", "201 bytes"},
		{"a\xffb", "not valid UTF-8 at byte 1"},
		{"\ufffd\xff", "not valid UTF-8 at byte 3"},
		{"a\nb", "U+000A at byte 1"},
		{"a\u202eb", "U+202E"},
		{"a\u00a0b", "U+00A0"},
		{"/a", "begins or ends"}, {"a/", "begins or ends"}, {"a//b", `"//"`}, {"/", "begins or ends"},
		{" a", "space"}, {"a ", "space"}, {" ", "space"},
	}
	for _, test := range tests {
		err := CheckName(test.name)
		if test.want == "" && err != nil {
			t.Errorf("CheckName(%q): %v", test.name, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("CheckName(%q): error %v, want one about %q", test.name, err, test.want)
		}
	}
}

func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"", "a/b", "a//b", " a", "\xff", "\u202e", strings.Repeat("x", 201)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := CheckName(name)
		if err != nil {
			checkPrints(t, err.Error())
			return
		}
		if name == "" || len(name) > MaxName || !utf8.ValidString(name) || name != strings.Trim(name, " /") {
			t.Errorf("%q is let through", name)
		}
		for _, r := range name {
			if !unicode.IsPrint(r) {
				t.Errorf("%q is let through with %U", name, r)
			}
		}
	})
}

func TestClaimsThatNoStoreCouldHonour(t *testing.T) {
	ok := Claim{ID: NewID(), TTL: time.Second}
	tests := []struct {
		says   string
		change func(c *Claim)
		want   string
	}{
		{"a plain one", func(*Claim) {}, ""},
		{"a permit", func(c *Claim) { c.Mode, c.Slots, c.Need = Permit, 3, 3 }, ""},
		{"the most room", func(c *Claim) { c.Room = MaxRoom }, ""},
		{"the highest ticket", func(c *Claim) { c.Fence = MaxTicket }, ""},
		{"no ID", func(c *Claim) { c.ID = "" }, "claim ID"},
		{"an ID with a dot", func(c *Claim) { c.ID = "." + c.ID[1:] }, "claim ID"},
		{"an unknown mode", func(c *Claim) { c.Mode = 3 }, "unknown mode"},
		{"no TTL", func(c *Claim) { c.TTL = 0 }, "not positive"},
		{"a TTL below zero", func(c *Claim) { c.TTL = -1 }, "not positive"},
		{"a semaphore of none", func(c *Claim) { c.Mode = Permit }, "0 slots"},
		{"a semaphore of too many", func(c *Claim) { c.Mode, c.Slots = Permit, Whole }, "a semaphore has"},
		{"more than all", func(c *Claim) { c.Mode, c.Slots, c.Need = Permit, 3, 4 }, "never be had"},
		{"less than none", func(c *Claim) { c.Mode, c.Slots, c.Need = Permit, 3, -1 }, "never be had"},
		{"a mutex with slots", func(c *Claim) { c.Slots = 1 }, "slots belong"},
		{"too much room", func(c *Claim) { c.Room = MaxRoom + 1 }, "room for"},
		{"less room than none", func(c *Claim) { c.Room = -1 }, "room for"},
		{"a ticket too high", func(c *Claim) { c.Fence = MaxTicket + 1 }, "proposed ticket"},
		{"fewer waiters than none", func(c *Claim) { c.MaxWaiters = -1 }, "negative"},
	}
	for _, test := range tests {
		t.Run(test.says, func(t *testing.T) {
			c := ok
			test.change(&c)
			err := c.Check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one about %q", err, test.want)
			}
		})
	}
}

func TestIDsAreOfOneLengthAndNeverTheSame(t *testing.T) {
	ids := make(map[string]bool)
	for range 10_000 {
		id := NewID()
		if id[0] == '-' {
			t.Fatalf("%s would be a flag in a script", id)
		}
		if !validID(id) || ids[id] {
			t.Fatalf("%q is wrong or not new", id)
		}
		ids[id] = true
	}
}
