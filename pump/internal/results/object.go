// Package results has the form in which the results of tasks are kept: objects of compressed JSON
// lines in blobs, and the rows that lead to them.
//
// Each object begins with a header. For each segment of a run with lines in the object the header
// names the object with the lines before: a chain, whose last object the segment's ledger names in
// the very write that records the tasks as done. So a reader that follows the chains back from the
// ledger meets the results of recorded tasks and no others; nothing is listed. A line that no
// ledger records is of a noted chain, one for each run and process, which begins in a row.
//
// The number of an object is greater than the number of each object before it. So a reader that
// takes the object with the greatest number first knows all chains that lead there.
package results

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/queuepump/queuepump/codec"
)

const (
	// Most is how many bytes of lines an object has before they are compressed; LineMost is the most
	// of one line.
	Most     = 8 << 20
	LineMost = 4 << 20
	// RunsMost is how many runs an object is of: its metadata names them.
	RunsMost = 200
	// unpackedMost is what a reader unpacks of an object: lines, the last one over Most, and a
	// header.
	unpackedMost = Most + 2*LineMost

	format   = 1
	runsMeta = "runs"
)

// Container is the name of a workload's container, the same in each account.
func Container(workload string) string { return workload + "-results" }

// Ref names an object; zero: none.
type Ref struct {
	Account        string
	Writer, Number uint64
}

// Blob is the object's name in the container. What varies most stands first.
func (r Ref) Blob() string {
	return fmt.Sprintf("%04x-%016x-%d.jsonl.gz", bits.Reverse16(uint16(r.Number)), r.Writer, r.Number)
}

// String is the account and the name; empty without an object.
func (r Ref) String() string {
	if r == (Ref{}) {
		return ""
	}
	return r.Account + "/" + r.Blob()
}

// Compare has the object with the greatest number first.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(o.Number, r.Number), cmp.Compare(r.Writer, o.Writer),
		cmp.Compare(r.Account, o.Account))
}

// MarshalText gives account, writer and number.
func (r Ref) MarshalText() ([]byte, error) {
	if r == (Ref{}) {
		return nil, nil
	}
	return fmt.Appendf(nil, "%s/%016x/%d", r.Account, r.Writer, r.Number), nil
}

var errRef = errors.New("the name of an object of results cannot be read")

// UnmarshalText reads what MarshalText has made.
func (r *Ref) UnmarshalText(text []byte) error {
	*r = Ref{}
	if len(text) == 0 {
		return nil
	}
	parts := strings.Split(string(text), "/")
	if len(parts) != 3 || parts[0] == "" || len(parts[0]) > 24 || len(parts[1]) != 16 {
		return errRef
	}
	writer, err := strconv.ParseUint(parts[1], 16, 64)
	number, err2 := strconv.ParseUint(parts[2], 10, 63)
	if err != nil || err2 != nil || number == 0 {
		return errRef
	}
	*r = Ref{parts[0], writer, number}
	return nil
}

// Pack gives the name as bytes, for the ledger.
func (r Ref) Pack() string {
	if r == (Ref{}) {
		return ""
	}
	b := binary.BigEndian.AppendUint64(nil, r.Writer)
	return string(append(binary.AppendUvarint(b, r.Number), r.Account...))
}

// Unpack reads what Pack has made.
func Unpack(packed string) (r Ref, err error) {
	if packed == "" {
		return r, nil
	}
	if len(packed) < 10 {
		return r, errRef
	}
	number, size := binary.Uvarint([]byte(packed[8:]))
	if size <= 0 || number == 0 || len(packed) == 8+size {
		return r, errRef
	}
	return Ref{packed[8+size:], binary.BigEndian.Uint64([]byte(packed)), number}, nil
}

// Chains are the objects before, by run and link: a segment's number, or Noted.
type Chains map[codec.RunID]map[string]Ref

// Noted is the link of a run's noted chain.
const Noted = "noted"

// Link is the link of a segment.
func Link(segment uint32) string { return strconv.Itoa(int(segment)) }

// Header is the first line of an object.
type Header struct {
	Format int       `json:"queuepumpResults"`
	At     time.Time `json:"at"` // by the clock of the process that put it
	// Noted is how many of the lines, the first ones, are of noted chains.
	Noted  int    `json:"noted"`
	Chains Chains `json:"chains"`
}

// Object is an object that is being made.
type Object struct {
	Ref    Ref
	Chains Chains
	noted  [][]byte
	lines  [][]byte
	size   int
}

// Add adds lines of a chain, and what was before in it, unless it has lines here already.
func (o *Object) Add(run codec.RunID, link string, before Ref, lines ...[]byte) {
	if o.Chains == nil {
		o.Chains = Chains{}
	}
	if o.Chains[run] == nil {
		o.Chains[run] = map[string]Ref{}
	}
	if _, is := o.Chains[run][link]; !is {
		o.Chains[run][link] = before
	}
	for _, line := range lines {
		o.size += len(line)
	}
	if link == Noted {
		o.noted = append(o.noted, lines...)
	} else {
		o.lines = append(o.lines, lines...)
	}
}

// Full reports whether no line of a run fits any more.
func (o *Object) Full(run codec.RunID) bool {
	return o.size >= Most || len(o.Chains) >= RunsMost && o.Chains[run] == nil
}

// Body is the object as it is put.
func (o *Object) Body(at time.Time) []byte {
	h := Header{Format: format, At: at.UTC(), Noted: len(o.noted), Chains: o.Chains}
	return packLines(h, o.noted, o.lines)
}

// Metadata names the runs.
func (o *Object) Metadata() map[string]string {
	var ids []string
	for run := range o.Chains {
		ids = append(ids, run.String())
	}
	slices.Sort(ids)
	return map[string]string{runsMeta: strings.Join(ids, ",")}
}

// RunsOf reads the runs from metadata; false: it does not tell them all.
func RunsOf(metadata map[string]string) (runs []codec.RunID, ok bool) {
	for text := range strings.SplitSeq(metadata[runsMeta], ",") {
		id, err := codec.ParseRunID(text)
		if err != nil {
			return nil, false
		}
		runs = append(runs, id)
	}
	return runs, true
}

var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// Read visits an object's header and then its lines, each with its line end and valid until the
// next one; noted says that a line is of its run's noted chain. It stops with the first error.
func Read(
	body []byte, head func(h *Header) error, visit func(line []byte, noted bool) error,
) error {
	z := unpackers.Get().(*gzip.Reader)
	defer unpackers.Put(z)
	if err := z.Reset(bytes.NewReader(body)); err != nil {
		return err
	}
	bounded := &io.LimitedReader{R: z, N: unpackedMost}
	lines := bufio.NewScanner(bounded)
	lines.Buffer(nil, unpackedMost)
	lines.Split(wholeLines)
	var h Header
	for i := -1; lines.Scan(); i++ {
		var err error
		if i >= 0 {
			err = visit(lines.Bytes(), i < h.Noted)
		} else if err = h.read(lines.Bytes()); err == nil {
			err = head(&h)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case lines.Err() != nil:
		return lines.Err()
	case h.Format == 0:
		return errors.New("it is empty")
	case bounded.N <= 0:
		return fmt.Errorf("it has more than %d bytes of lines", unpackedMost)
	}
	return nil
}

func (h *Header) read(line []byte) error {
	err := json.Unmarshal(line, h)
	if err == nil && h.Format != format {
		err = fmt.Errorf("its format is %d: this program reads %d; use a newer one", h.Format, format)
	}
	return err
}

// wholeLines splits into lines that keep their ends.
func wholeLines(data []byte, end bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if end && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// LinesOf is how all lines of a run begin.
func LinesOf(run codec.RunID) []byte { return []byte(`{"run":"` + run.String() + `","segment":`) }

// Identify reads segment and n of a line of the run of LinesOf; false: it is of another run.
func Identify(line, linesOf []byte) (segment uint32, n uint64, ok bool) {
	rest, ok := bytes.CutPrefix(line, linesOf)
	first, rest, is := bytes.Cut(rest, []byte(`,"n":`))
	second, _, more := bytes.Cut(rest, []byte(","))
	s, err := strconv.ParseUint(string(first), 10, 32)
	n, err2 := strconv.ParseUint(string(second), 10, 64)
	return uint32(s), n, ok && is && more && err == nil && err2 == nil
}

// packLines gives a value as a line of JSON, and lines behind it, compressed by gzip.
func packLines(v any, lines ...[][]byte) []byte {
	text, _ := json.Marshal(v)
	var packed bytes.Buffer
	z := packers.Get().(*gzip.Writer)
	defer packers.Put(z)
	z.Reset(&packed)
	_, _ = z.Write(append(text, '\n')) // to memory, as the others
	for _, line := range slices.Concat(lines...) {
		_, _ = z.Write(line)
	}
	_ = z.Close()
	return packed.Bytes()
}

var packers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails for a wrong level only
	return z
}}
