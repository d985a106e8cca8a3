package codec

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// RunID names one run: 128 random bits, so that runs of any number of
// distributors never meet by accident. The zero RunID names no
// run.
type RunID [16]byte

// NewRunID draws a fresh id from the system's random source.
func NewRunID() RunID {
	var id RunID
	rand.Read(id[:]) // never fails: it ends the program instead (crypto/rand)
	return id
}

// ParseRunID reads what [RunID.String] wrote; upper-case digits are accepted.
func ParseRunID(s string) (RunID, error) {
	var id RunID
	err := id.UnmarshalText([]byte(s))
	return id, err
}

// String is the id as 32 lower-case hexadecimal digits.
func (id RunID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id names no run.
func (id RunID) IsZero() bool { return id == RunID{} }

// MarshalText is [RunID.String] for encoders.
func (id RunID) MarshalText() ([]byte, error) {
	return hex.AppendEncode(nil, id[:]), nil
}

// UnmarshalText is [ParseRunID] for decoders. On an error id is unchanged.
func (id *RunID) UnmarshalText(text []byte) error {
	if len(text) != 2*len(id) {
		return fmt.Errorf("codec: run id has %d characters, want %d hexadecimal digits", len(text),
			2*len(id))
	}
	var parsed RunID
	if _, err := hex.Decode(parsed[:], text); err != nil {
		return fmt.Errorf("codec: run id %q: want %d hexadecimal digits", text, 2*len(id))
	}
	*id = parsed
	return nil
}
