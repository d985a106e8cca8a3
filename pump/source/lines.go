package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/queuepump/queuepump/pump/storage"
)

// errLineTooLong is a line or row above TextSource.MaxLine.
var errLineTooLong = errors.New("longer than the longest line allowed")

// lineReader cuts lines from a stream through one buffer that grows to the longest
// line allowed and no further, and knows where in the stream it is.
type lineReader struct {
	r     io.Reader
	buf   []byte
	start int // buf[start:end] is read and not yet taken
	end   int
	err   error                 // of r, behind the buffered bytes
	max   int                   // longest line, without its end
	pos   int64                 // of buf[start] in the (uncompressed) stream
	line  int64                 // number of the line that begins at start, from 1
	first int64                 // number of the first line of the record taken last
	about func(wait bool) error // see pausing; nil: the reader does not ask
	ctx   context.Context       // of the call that reads; it ends what takes long
	grown func() bool           // whether the file goes on behind its end here; nil: it does not
	// openEnd says that the last line was taken without an end of line.
	openEnd bool
	// from is where the line that is being skipped begins, below 0 for none, and head is the part of
	// it that is kept: if ctx ends on the way, that line was not taken.
	from int64
	head []byte
	// encoding is what the text is checked against; nil: only CSV is, and is UTF-8.
	encoding *encoding
	width    func(text []byte) int64 // of its text in the input; nil: as many bytes as it has
}

const lineBuffer = 64 << 10

func newLineReader(r io.Reader, maxLine int) *lineReader {
	return &lineReader{
		r: r, buf: make([]byte, lineBuffer), max: maxLine, line: 1, ctx: context.Background(), from: -1,
	}
}

const byteOrderMark = "\xef\xbb\xbf"

// skipBOM drops the byte order mark that Windows programs put before UTF-8
// text. It reads on only while what is there may be one: a silent pipe's first
// line may be shorter.
func (c *lineReader) skipBOM() {
	for c.err == nil && c.end-c.start < len(byteOrderMark) &&
		strings.HasPrefix(byteOrderMark, string(c.buf[c.start:c.end])) {
		c.fill()
	}
	if bytes.HasPrefix(c.buf[c.start:c.end], []byte(byteOrderMark)) {
		c.take(len(byteOrderMark), 0)
	}
}

// jump continues at pos of the stream, where r already reads.
func (c *lineReader) jump(pos, line int64) {
	c.start, c.end, c.err = 0, 0, nil
	c.pos, c.line = pos, line
}

// discard takes n bytes, which may be more than the buffer holds.
func (c *lineReader) discard(n int64) error {
	for n > 0 {
		if c.start == c.end {
			if c.err != nil {
				return c.err
			}
			if c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			c.fill()
			continue
		}
		k := min(n, int64(c.end-c.start))
		c.start += int(k)
		c.pos += k
		n -= k
	}
	return nil
}

// fill reads once more. The buffered bytes move to the front of the buffer, so
// that slices given before are dead.
func (c *lineReader) fill() {
	if c.start > 0 {
		copy(c.buf, c.buf[c.start:c.end])
		c.end -= c.start
		c.start = 0
	}
	if c.end == len(c.buf) {
		grown := make([]byte, min(2*len(c.buf), max(c.max+2, lineBuffer)))
		copy(grown, c.buf[:c.end])
		c.buf = grown
	}
	if c.about != nil {
		if c.err = c.about(false); c.err != nil {
			return
		}
	}
	for range 100 { // a Reader that gives nothing and no error so often is broken (as in bufio)
		n, err := c.r.Read(c.buf[c.end:])
		c.end += n
		c.err = err
		if n > 0 || err != nil {
			return
		}
	}
	c.err = io.ErrNoProgress
}

// lineAt finds the line that begins at bytes behind the start: buf[start+at:start+end]
// without its end of line, the next one at start+next. It takes nothing. The
// error is io.EOF if nothing is there, errLineTooLong if next would be more than
// max+2 behind the start, or the stream's own.
func (c *lineReader) lineAt(at int) (end, next int, err error) {
	if c.from >= 0 {
		return 0, 0, errLineTooLong
	}
	for seen := at; ; {
		if i := bytes.IndexByte(c.buf[c.start+seen:c.end], '\n'); i >= 0 {
			end, next = seen+i, seen+i+1
			break
		}
		seen = c.end - c.start
		if c.err != nil {
			if c.err != io.EOF {
				return 0, 0, c.err
			}
			if seen == at || c.unfinished() {
				return 0, 0, io.EOF
			}
			end, next, c.openEnd = seen, seen, true // the last line, without an end
			break
		}
		if seen > c.max+1 {
			return 0, 0, errLineTooLong
		}
		c.fill()
	}
	if end > at && c.buf[c.start+end-1] == '\r' {
		end--
	}
	if end > c.max {
		return 0, 0, errLineTooLong
	}
	return end, next, nil
}

// unfinished reports whether the rest is the beginning of a line that goes on behind the end of the
// part that is read.
func (c *lineReader) unfinished() bool { return c.grown != nil && c.grown() }

// take moves behind n bytes that hold the given number of lines, and returns them.
func (c *lineReader) take(n int, lines int64) []byte {
	b := c.buf[c.start : c.start+n]
	c.start += n
	c.pos += c.size(b)
	c.line += lines
	return b
}

// nextLine takes the next line that is not blank. A line that is too long is taken as well and
// reported as [*BadInput].
func nextLine(c *lineReader) ([]byte, error) {
	for {
		end, next, err := c.lineAt(0)
		if err == errLineTooLong {
			return nil, c.tooLong()
		}
		if err != nil {
			return nil, err
		}
		c.first = c.line
		var wrong error
		if c.encoding != nil {
			wrong = c.undecoded(end)
		}
		line := c.take(next, 1)[:end]
		if wrong != nil {
			return nil, &BadInput{Raw: keep(line), Err: wrong}
		}
		if end > 0 && line[0] > ' ' && line[0] < utf8.RuneSelf || len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
}

// tooLong takes the line at the start and makes the error for it.
func (c *lineReader) tooLong() error {
	c.first = c.line
	head, err := c.skipLine(storage.MaxText)
	if err != nil {
		return err
	}
	return &BadInput{Raw: head, Err: fmt.Errorf("%w, %d bytes (--max-line); allow up to %d, or send "+
		"the name of a blob with the body", errLineTooLong, c.max, maxMaxLine)}
}

// keep bounds what is kept of a bad record.
func keep(raw []byte) []byte { return raw[:min(len(raw), storage.MaxText)] }

// skipLine takes a line of any length and returns the beginning of it, at most keep bytes.
func (c *lineReader) skipLine(keep int) ([]byte, error) {
	if c.from < 0 {
		c.from, c.head = c.pos, nil
	}
	for {
		b := c.buf[c.start:c.end]
		i := bytes.IndexByte(b, '\n')
		if i >= 0 {
			b = b[:i+1]
		}
		c.head = append(c.head, b[:min(len(b), keep-len(c.head))]...)
		c.take(len(b), 0)
		if i >= 0 || c.err == io.EOF {
			c.line++
			c.from = -1
			return bytes.TrimRight(c.head, "\r\n"), nil
		}
		if c.err != nil {
			return nil, c.err
		}
		if c.ctx.Err() != nil {
			return nil, context.Cause(c.ctx)
		}
		c.fill()
	}
}

// at is the position behind the record taken last.
func (c *lineReader) at() int64 {
	if c.from >= 0 {
		return c.from
	}
	return c.pos
}

// idStrings makes the strings of ids, many from one allocation.
type idStrings struct{ b strings.Builder }

// idChunk is how many bytes of ids share an allocation. Few, because one id that a handler
// keeps keeps all of them.
const idChunk = 4 << 10

func (s *idStrings) make(id []byte) string {
	if s.b.Cap()-s.b.Len() < len(id) {
		s.b.Reset()
		s.b.Grow(max(idChunk, len(id)))
	}
	from := s.b.Len()
	s.b.Write(id) // never moves what is there: there is room
	return s.b.String()[from:]
}
