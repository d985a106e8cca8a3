package azure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

// document is the XML document of a Put or Replace, read from its parts: 64 KiB
// of text are sent from where the caller has them. It is the request's body.
//
// encoding/xml would replace bytes that XML does not have by U+FFFD without an
// error, and takes most of a Put's time (azsim/AZURE.md D1); text that is not
// legal is refused instead.
type document struct {
	// mu is held while text is read: a transport may go on reading after its
	// answer, and the text is the caller's again when the call returns.
	mu   sync.Mutex
	text []byte // escaped
	at   int64
}

const (
	documentHead = "<QueueMessage><MessageText>"
	documentTail = "</MessageText></QueueMessage>"
)

func newDocument(text []byte) (*document, error) {
	if i := firstIllegal(text); i >= 0 {
		return nil, fmt.Errorf("the text is not legal XML at byte %d; encode it, for example in base64", i)
	}
	return &document{text: escaped(text)}, nil
}

// escaped is text as XML character data: itself if nothing in it needs escaping.
// Base64 does not, and four searches for one byte each are far quicker than a look
// at each byte.
func escaped(text []byte) []byte {
	if bytes.IndexByte(text, '&') < 0 && bytes.IndexByte(text, '<') < 0 && bytes.IndexByte(text, '>') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	b := make([]byte, 0, len(text)+len(text)/8)
	for _, c := range text {
		switch c {
		case '&':
			b = append(b, "&amp;"...)
		case '<':
			b = append(b, "&lt;"...)
		case '>':
			b = append(b, "&gt;"...)
		case '\r':
			b = append(b, "&#13;"...) // XML readers turn a bare one into a newline
		default:
			b = append(b, c)
		}
	}
	return b
}

func (d *document) size() int64 { return int64(len(documentHead) + len(d.text) + len(documentTail)) }

func (d *document) Read(p []byte) (n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n = readPart(p, documentHead, d.at)
	n += readPart(p[n:], d.text, d.at+int64(n)-int64(len(documentHead)))
	n += readPart(p[n:], documentTail, d.at+int64(n)-int64(len(documentHead)+len(d.text)))
	d.at += int64(n)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// readPart copies a part from the at-th byte on, if the reader is within it.
func readPart[part string | []byte](p []byte, from part, at int64) int {
	if at < 0 || at >= int64(len(from)) {
		return 0
	}
	return copy(p, from[at:])
}

func (d *document) Seek(offset int64, whence int) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += d.at
	case io.SeekEnd:
		offset += d.size()
	}
	if offset < 0 {
		return d.at, errors.New("seek before the beginning")
	}
	d.at = offset
	return offset, nil
}

// Close does nothing: net/http closes a body and takes it up again.
func (d *document) Close() error { return nil }

// release makes the document independent of the caller's text. After a success
// the service has all of it; otherwise somebody may still be reading.
func (d *document) release(acknowledged bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if acknowledged {
		d.text, d.at = nil, int64(len(documentHead)+len(documentTail))
		return
	}
	d.text = bytes.Clone(d.text)
}
