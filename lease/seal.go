package lease

import "time"

// MaxSealValue bounds the value of a seal, in bytes. A seal carries a result or a
// pointer to one, not the data.
const MaxSealValue = 4096

// Seal keeps a name closed for a while after a claim has left it: nobody is granted
// until it ends, and everybody can read its value. The zero Seal is no seal.
type Seal struct {
	For   time.Duration // how long from the moment the store takes it; when read back, how long it still lasts
	Value string

	// Victim is the ID of a claim that is broken. Whatever For says, the store sets it to
	// what is left of that claim's lease; the seal also ends when the claim itself leaves:
	// its holder has answered, nobody can overlap with it. With a For of 0 the name is not
	// closed at all, and the victim is told nevertheless.
	Victim string
	By     string // who broke it; "": nobody, the claim's own process seals
	Reason string // why
}

// Closed reports whether there is a seal.
func (s Seal) Closed() bool { return s.For > 0 }
