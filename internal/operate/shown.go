package operate

import (
	"bufio"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/queuepump/queuepump/internal/cli"
)

// bodyShown is how many bytes of a body people are shown.
const bodyShown = 400

// quoted is the beginning of a body, with everything escaped that is not printed.
func quoted(b []byte) string {
	if len(b) <= bodyShown {
		return strconv.QuoteToGraphic(string(b))
	}
	end := bodyShown
	for end > bodyShown-utf8.UTFMax && !utf8.RuneStart(b[end]) {
		end--
	}
	return fmt.Sprintf("%s and %s more", strconv.QuoteToGraphic(string(b[:end])),
		cli.Bytes(int64(len(b)-end)))
}

// taskLine is a task in what --json prints: texts as texts, other bytes in base64.
type taskLine struct {
	N          uint64  `json:"n"`
	Key        *string `json:"key,omitempty"`
	KeyBase64  []byte  `json:"keyBase64,omitempty"`
	ID         string  `json:"id,omitempty"`
	Foreign    string  `json:"foreign,omitempty"`
	Body       *string `json:"body,omitempty"`
	BodyBase64 []byte  `json:"bodyBase64,omitempty"`
}

func shownTask(n uint64, id, foreign string, key, body []byte) taskLine {
	line := taskLine{N: n, ID: id, Foreign: foreign}
	line.Key, line.KeyBase64 = texts(key)
	line.Body, line.BodyBase64 = texts(body)
	return line
}

func texts(b []byte) (text *string, binary []byte) {
	if utf8.Valid(b) {
		return new(string(b)), nil
	}
	return nil, b
}

// writeApart writes a text as it is, with a line end between it and the one before.
func writeApart(w *bufio.Writer, text []byte, first bool) error {
	if !first {
		_ = w.WriteByte('\n') // w keeps the error
	}
	_, err := w.Write(text)
	return err
}
