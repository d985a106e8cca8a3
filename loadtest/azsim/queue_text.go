package azsim

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

var errNoText = errors.New("azsim: no MessageText in the body") // which is XML

// parseMessage reads the body of Put and Update Message:
//
//	<QueueMessage><MessageText>text</MessageText></QueueMessage>
//
// with or without byte order mark and prolog (AZURE.md A3). The text is a part of body if that is
// possible, and plain if it can be written into XML as it is.
func parseMessage(body []byte) (text []byte, plain bool, err error) {
	body = bytes.TrimPrefix(body, []byte(bom))
	if text, ok := plainMessage(body); ok {
		return text, true, nil
	}
	text, err = slowMessage(body)
	return text, false, err
}

// plainMessage is the way of nearly every message: base64 text in the elements that all clients
// write. It looks at each byte once and copies nothing. What it is not sure of goes the slow way.
func plainMessage(body []byte) ([]byte, bool) {
	rest := bytes.TrimLeft(body, " \t\r\n")
	if bytes.HasPrefix(rest, []byte("<?xml")) {
		end := bytes.Index(rest, []byte("?>"))
		if end < 0 || end > 128 || bytes.Contains(rest[:end], []byte("encoding")) &&
			!bytes.Contains(bytes.ToLower(rest[:end]), []byte("utf-8")) {
			return nil, false
		}
		rest = bytes.TrimLeft(rest[end+2:], " \t\r\n")
	}
	rest, ok := bytes.CutPrefix(rest, []byte("<QueueMessage><MessageText>"))
	if !ok {
		return nil, false
	}
	end := bytes.IndexByte(rest, '<')
	if end < 0 || !isPlain(rest[:end]) {
		return nil, false
	}
	tail := bytes.TrimRight(rest[end:], " \t\r\n")
	if string(tail) != "</MessageText></QueueMessage>" {
		return nil, false
	}
	return rest[:end:end], true
}

// isPlain reports whether b is printable ASCII without &, < and >.
func isPlain(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	// equal sets the high bit of each byte of w that is c; less of each that
	// is below c. Neighbours can be set falsely only where a true one is.
	equal := func(w uint64, c uint64) uint64 { w ^= ones * c; return (w - ones) &^ w }
	less := func(w uint64, c uint64) uint64 { return (w - ones*c) &^ w }
	for len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		if (w|less(w, ' ')|equal(w, '&')|equal(w, '<')|equal(w, '>'))&highs != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c < ' ' || c >= 0x80 || c == '&' || c == '<' || c == '>' {
			return false
		}
	}
	return true
}

// slowMessage reads any other XML. Markup inside the text is dropped, as Put Message documents.
func slowMessage(body []byte) ([]byte, error) {
	d := xml.NewDecoder(bytes.NewReader(body))
	d.CharsetReader = func(string, io.Reader) (io.Reader, error) { return nil, errors.ErrUnsupported }
	var text []byte
	depth, found, in := 0, false, false // in: inside MessageText
	for {
		t, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			depth++
			switch {
			case depth == 1 && t.Name.Local != "QueueMessage":
				return nil, errors.New("azsim: the root is not QueueMessage")
			case depth == 2 && t.Name.Local == "MessageText":
				if found {
					return nil, errors.New("azsim: MessageText twice")
				}
				found, in, text = true, true, []byte{}
			case depth > 32: // the decoder keeps a stack
				return nil, errors.New("azsim: nested too deeply")
			}
		case xml.EndElement:
			if depth == 2 {
				in = false
			}
			depth--
		case xml.CharData:
			if in {
				text = append(text, t...)
			}
		}
	}
	if found && halved(string(text), body) {
		return nil, errors.New("azsim: half a surrogate pair is not a character")
	} else if !found {
		return nil, errNoText
	}
	return text, nil
}

// halved reports whether a body had half a surrogate pair, which decoders turn into U+FFFD.
func halved(text string, body []byte) bool {
	return strings.ContainsRune(text, utf8.RuneError) && !bytes.ContainsRune(body, utf8.RuneError) &&
		!bytes.Contains(bytes.ToLower(body), []byte("fffd"))
}
