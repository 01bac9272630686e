package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
)

// longest is how long a file's name may get by escaping. File systems take 255 bytes,
// encrypting ones as little as 143.
const longest = 140

// mark begins what is not a plain escaped name. Escaping never writes it.
const mark = '~'

// fileName is where a name's state is. Two names never share a file, also where the
// file system does not tell upper case from lower or normalises Unicode: only a-z, 0-9
// and a few signs stand for themselves. What gets too long ends in a hash; the file
// has the name inside, and it is compared.
func fileName(name string) string {
	escaped := escape(name)
	if len(escaped) <= longest {
		return escaped
	}
	sum := sha256.Sum256([]byte(name))
	return escaped[:longest-1-2*len(sum)] + string(mark) + hex.EncodeToString(sum[:])
}

// File is the path of the file that has a name's state in that directory, while it has any.
func File(dir, name string) string { return filepath.Join(dir, namesDir, fileName(name)) }

func escape(name string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c, i == 0 || i == len(name)-1) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// plain reports whether a byte stands for itself. A dot at the edge means something to
// the file system.
func plain(c byte, edge bool) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' && !edge
}

// mayBegin reports whether the name that has this file may begin with prefix. It spares
// reading files; the name inside decides.
func mayBegin(file, prefix string) bool {
	if strings.IndexByte(file, mark) >= 0 {
		return true
	}
	raw, err := unescape(file)
	return err != nil || strings.HasPrefix(raw, prefix)
}

func unescape(file string) (string, error) {
	var b strings.Builder
	for {
		before, after, more := strings.Cut(file, "%")
		b.WriteString(before)
		if !more {
			return b.String(), nil
		}
		if len(after) < 2 {
			return "", hex.ErrLength
		}
		c, err := hex.DecodeString(after[:2])
		if err != nil {
			return "", err
		}
		b.Write(c)
		file = after[2:]
	}
}
