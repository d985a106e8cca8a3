// Package taskline has the JSON lines about tasks: of --out, of results in blobs, of processor
// check, and what a child reads of a task.
package taskline

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
)

// Checked is what `processor check` prints of one line with --json.
type Checked struct {
	Line    int     `json:"line"`
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	// RetrySeconds is the time until the task asks to be tried again, or for which its service says
	// "not now"; null without either.
	RetrySeconds *float64        `json:"retrySeconds"`
	Error        string          `json:"error"`
	Result       json.RawMessage `json:"result"`
}

// AppendResult appends the line of a task that a worker did: its identity, its result, which is
// JSON or empty, its attempt and a line end.
func AppendResult(dst []byte, t *pump.Task, result json.RawMessage) []byte {
	dst = AppendIdentity(append(dst, '{'), t)
	dst = append(dst, `,"result":`...)
	if len(result) == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = appendLine(dst, result)
	}
	dst = append(dst, `,"attempt":`...)
	dst = strconv.AppendInt(dst, int64(t.Attempt), 10)
	return append(dst, "}\n"...)
}

// MaxKey is the longest key that is told of a task. A longer one, as that of a large body that is
// its own key, is left out rather than cut: a part would be another key.
const MaxKey = 64 << 10

// AppendIdentity appends run, segment, n, key and id of a task, and its name if it has no run.
func AppendIdentity(dst []byte, t *pump.Task) []byte {
	dst = append(dst, `"run":"`...)
	dst = append(dst, t.Run.String()...)
	dst = append(dst, `","segment":`...)
	dst = strconv.AppendUint(dst, uint64(t.Segment), 10)
	dst = append(dst, `,"n":`...)
	dst = strconv.AppendUint(dst, t.N, 10)
	if len(t.Key) <= MaxKey {
		dst = appendText(append(dst, ','), "key", t.Key)
	}
	dst = append(dst, `,"id":`...)
	dst = AppendString(dst, []byte(t.ID))
	if t.Foreign != "" {
		dst = append(dst, `,"foreign":`...)
		dst = AppendString(dst, []byte(t.Foreign))
	}
	return dst
}

// AppendBody appends the body as JSON if it is JSON, else as a string, else as bodyBase64.
func AppendBody(dst, body []byte) []byte {
	// Valid JSON may hold invalid UTF-8 inside strings; our lines must not.
	if utf8.Valid(body) && jsonline.Valid(body) {
		return appendLine(append(dst, `"body":`...), body)
	}
	return appendText(dst, "body", body)
}

// appendText appends name and a string, or nameBase64 if the text is not UTF-8.
func appendText(dst []byte, name string, text []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	if !utf8.Valid(text) {
		dst = append(dst, `Base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, text)
		return append(dst, '"')
	}
	dst = append(dst, `":`...)
	return AppendString(dst, text)
}

// appendLine appends a valid JSON value so that it stays on one line.
func appendLine(dst, value []byte) []byte {
	if bytes.IndexByte(value, '\n') < 0 && bytes.IndexByte(value, '\r') < 0 {
		return append(dst, value...)
	}
	b := bytes.NewBuffer(dst)
	_ = json.Compact(b, value) // it is valid
	return b.Bytes()
}

// AppendString appends a text as a JSON string.
func AppendString(dst, s []byte) []byte {
	for _, c := range s {
		if c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(string(s)) // a string never fails
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// AsResult makes a JSON value of what a process printed or an endpoint answered.
func AsResult(out []byte) json.RawMessage {
	out = bytes.TrimSpace(out)
	switch {
	case len(out) == 0:
		return nil
	case utf8.Valid(out) && jsonline.Valid(out):
		return bytes.Clone(out)
	case utf8.Valid(out):
		return AppendString(nil, out)
	default:
		b, _ := json.Marshal(map[string][]byte{"base64": out})
		return b
	}
}
