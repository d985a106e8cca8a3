package azure

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	documentHead = "<QueueMessage><MessageText>"
	documentTail = "</MessageText></QueueMessage>"
)

// document is the XML document of a Put or Replace, in memory of its own: net/http may go on
// reading a body after its answer, and text is the caller's again when the call returns.
//
// encoding/xml would replace bytes that XML does not have by U+FFFD without an
// error, and takes most of a Put's time (azsim/AZURE.md D1); text that is not
// legal is refused instead.
func document(text []byte) ([]byte, error) {
	if i := firstIllegal(text); i >= 0 {
		return nil, fmt.Errorf("the text is not legal XML at byte %d; encode it, for example in base64",
			i)
	}
	text = escaped(text)
	b := make([]byte, 0, len(documentHead)+len(text)+len(documentTail))
	b = append(b, documentHead...)
	b = append(b, text...)
	return append(b, documentTail...), nil
}

// escaped is text as XML character data: itself if nothing in it needs escaping. In base64 nothing
// does, and four searches for one byte each are far quicker than a look at each byte.
func escaped(text []byte) []byte {
	if bytes.IndexByte(text, '&') < 0 && bytes.IndexByte(text, '<') < 0 &&
		bytes.IndexByte(text, '>') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	return []byte(escaper.Replace(string(text)))
}

// XML readers turn a bare carriage return into a newline.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#13;")
