package source

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
)

// encoding is how text is stored.
type encoding struct {
	name   string // as the WHATWG has it: several labels mean one encoding
	any    bool   // UTF-16 of either order, which the text says
	decode func(io.Reader) io.Reader
	// width is how many bytes of the file a decoded text takes; nil: only the decoder could tell.
	width func(text []byte) int64
}

// encodingOf finds an encoding by one of its labels. UTF-8 has no decoder.
func encodingOf(label string) (*encoding, error) {
	found, name := charset.Lookup(label)
	e := &encoding{name: name}
	switch name {
	case "", "replacement", "x-user-defined":
		return nil, pump.Invalid("encoding",
			fmt.Sprintf("%q is not an encoding that can be read", label),
			"use one such as windows-1252, utf-16 or shift_jis, or save the file as UTF-8")
	case "utf-8":
		return e, nil
	case "shift_jis", "euc-jp", "iso-2022-jp", "euc-kr", "big5", "gbk", "gb18030":
	case "utf-16le", "utf-16be":
		e.width = func(text []byte) int64 { return units(text, 2) }
		e.any = !strings.EqualFold(strings.TrimSpace(label), name)
	default:
		e.width = func(text []byte) int64 { return units(text, 1) }
	}
	e.decode = func(r io.Reader) io.Reader { return found.NewDecoder().Reader(r) }
	return e, nil
}

// encoding is the one that Encoding names, or nil.
func (s *TextSource) encoding() (*encoding, error) {
	if s.Encoding == "" {
		return nil, nil
	}
	return encodingOf(s.Encoding)
}

// units is the size of a text whose characters take size bytes each, or twice that if one unit of
// UTF-16 cannot hold them. A text may be cut anywhere: the sizes of the parts make that of the
// whole.
func units(text []byte, size int64) (n int64) {
	for _, b := range text {
		if utf8.RuneStart(b) {
			n += size
			if b >= 0xf0 && size == 2 {
				n += size
			}
		}
	}
	return n
}

// decode has the text read as UTF-8. A text in another encoding than e, as far as its beginning
// says, is an error. Nil stands for UTF-8.
func (in *input) decode(e *encoding) error {
	text, ok := in.text.(*bufio.Reader)
	if !ok {
		text = bufio.NewReaderSize(in.text, lineBuffer)
	}
	// No record is shorter than two bytes with its end of line, so no record of a pipe waits for this.
	head, err := text.Peek(2)
	if err == nil && jsonline.Wide(head) != "" {
		head, err = text.Peek(4)
	}
	if err != nil && err != io.EOF {
		return err
	}
	in.text, err = text, nil // an end comes again
	wide := jsonline.Wide(head)
	is16 := e != nil && strings.HasPrefix(e.name, "utf-16")
	switch {
	case wide == "UTF-32":
		return fmt.Errorf("is %s; save it as UTF-8", wide)
	case wide != "" && !is16:
		return fmt.Errorf("is %s; save it as UTF-8, or read it with --encoding utf-16", wide)
	case !is16:
	case bytes.HasPrefix(head, []byte("\xfe\xff")), e.any && bytes.HasPrefix(head, []byte{0}):
		e, err = encodingOf("utf-16be")
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		e, err = encodingOf("utf-16le")
	}
	if err != nil || e == nil || e.decode == nil {
		return err
	}
	if e.width == nil {
		in.file = nil // as a compressed one: its offsets are not the text's
	}
	in.decoder = e.decode
	in.text = e.decode(text)
	return nil
}

// replaced stands for bytes that a decoder cannot decode.
const replaced = "\uFFFD"

// undecoded is an error if the first n bytes, which begin a line, have a byte that is not of the
// encoding.
func (c *lineReader) undecoded(n int) error {
	text, e := c.buf[c.start:c.start+n], c.encoding
	at := 0
	if decoded := e != nil && e.decode != nil; decoded {
		at = bytes.Index(text, []byte(replaced))
	} else if e = nil; utf8.Valid(text) {
		at = -1
	} else {
		for r, size := utf8.DecodeRune(text); r != utf8.RuneError || size > 1; {
			at += size
			r, size = utf8.DecodeRune(text[at:])
		}
	}
	if at < 0 {
		return nil
	}
	number := c.line + int64(bytes.Count(text[:at], []byte{'\n'}))
	line := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
	switch {
	case e == nil:
		return fmt.Errorf("byte %d of line %d, 0x%02x, is not UTF-8; save the file as UTF-8, or name "+
			"its encoding, such as --encoding windows-1252", len(line)+1, number, text[at])
	case e.width == nil:
		return fmt.Errorf("character %d of line %d is not %s", utf8.RuneCount(line)+1, number, e.name)
	}
	return fmt.Errorf("byte %d of line %d is not %s", e.width(line)+1, number, e.name)
}

// size is how many bytes of the input some text takes.
func (c *lineReader) size(text []byte) int64 {
	if c.width == nil {
		return int64(len(text))
	}
	return c.width(text)
}
