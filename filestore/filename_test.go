package filestore

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"github.com/redlatch/redlatch/lease"
)

// awkward are parts of names that file systems take for one another, or for something.
var awkward = []string{
	"a", "A", "ab", "AB", "z", "0", ".", "..", "/", "-", "_", "~", "%", "%2f", "%2F", "%25", "\\", ":", "*", "?", " ", "\"", "|", "<", ">",
	"é", "e\u0301", "É", "ß", "ss", "SS", "ſ", "s", "K", "k", "\u212a", "İ", "i", "I", "ı", "Å", "\u212b", "ﬁ", "fi", "ﬀ", "ff",
	"ǆ", "ǅ", "Ǆ", "日本", "\U0001f512", "con", "CON", "nul", "aux.txt", "lock-00", "~lock-00", "names", strings.Repeat("x", 60), strings.Repeat("X", 60),
}

// Two names never share a file, whatever the file system takes for the same; and every
// file's name is one that every file system takes.
func TestNamesNeverShareAFile(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 3))
	names := make(map[string]string) // by file
	add := func(name string) {
		if lease.CheckName(name) != nil {
			return
		}
		file := fileName(name)
		if was, ok := names[file]; ok && was != name {
			t.Fatalf("seed %d: %q and %q share %q", seed, was, name, file)
		}
		names[file] = name
		for i, c := range file {
			ok := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.ContainsRune("-_%~", c) || c == '.' && 0 < i && i < len(file)-1
			if !ok {
				t.Fatalf("seed %d: %q is in %q, which has %q", seed, name, file, c)
			}
		}
		if file == "" || len(file) > longest || file[0] == mark {
			t.Fatalf("seed %d: %q is in %q, %d bytes", seed, name, file, len(file))
		}
		if raw, err := unescape(file); len(file) < longest && (err != nil || raw != name) {
			t.Fatalf("seed %d: %q is in %q, which is %q, %v", seed, name, file, raw, err)
		}
	}
	for _, part := range awkward {
		add(part)
		for _, other := range awkward {
			add(part + other)
		}
	}
	for range 4_000 {
		var b strings.Builder
		for range 1 + rng.IntN(8) {
			b.WriteString(awkward[rng.IntN(len(awkward))])
		}
		name := b.String()
		add(name)
		add(strings.ToUpper(name))
		add(strings.ToLower(name))
		add(strings.Map(unicode.SimpleFold, name))
	}
	if len(names) < 5_000 {
		t.Errorf("seed %d: only %d names", seed, len(names))
	}
}

// What is longer than a file's name may be ends in its hash: also names that differ in
// their last byte only, and those that look like such a file.
func TestLongNamesNeverShareAFile(t *testing.T) {
	long := strings.Repeat("É", lease.MaxName/2)
	files := map[string]string{}
	for i := range 300 {
		name := long[:lease.MaxName-4] + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + "z"
		files[fileName(name)] = name
	}
	if len(files) != 300 {
		t.Errorf("300 names are in %d files", len(files))
	}
	for file := range files {
		if fileName(file) == file {
			t.Errorf("%q is the file of two names", file)
		}
	}
}

func TestAwkwardNamesOnDisk(t *testing.T) {
	if supported != nil {
		return
	}
	s, err := New(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := 0
	for _, name := range append(awkward, strings.Repeat("ä", lease.MaxName/2), strings.Repeat("a", lease.MaxName)) {
		if lease.CheckName(name) != nil {
			continue
		}
		want++
		st, err := s.Join(t.Context(), name, lease.Claim{ID: lease.NewID(), TTL: 1 << 40})
		if err != nil || st.State != lease.Held {
			t.Errorf("%q: %v, %v", name, st.State, err)
		}
	}
	for name, err := range s.Names(t.Context(), "") {
		q, inspectErr := s.Inspect(t.Context(), name)
		if err != nil || inspectErr != nil || len(q.Holders()) != 1 {
			t.Errorf("%q: %v, %v, %+v", name, err, inspectErr, q.Claims)
		}
		want--
	}
	if want != 0 {
		t.Errorf("%d names are missing", want)
	}
}
