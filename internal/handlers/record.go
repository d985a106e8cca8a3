package handlers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
)

// appendTask appends the line of --out for a task: run, segment, n, key, id,
// body, attempt and a line end.
func appendTask(dst []byte, t *pump.Task) []byte {
	dst = appendIdentity(append(dst, '{'), t)
	dst = appendBody(append(dst, ','), t.Body)
	dst = append(dst, `,"attempt":`...)
	dst = strconv.AppendInt(dst, int64(t.Attempt), 10)
	return append(dst, "}\n"...)
}

// appendResult appends the line of --out for a task that a worker did: as
// appendTask, with the result in the place of the body.
func appendResult(dst []byte, t *pump.Task, result json.RawMessage) []byte {
	dst = appendIdentity(append(dst, '{'), t)
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

// appendRequest appends the line that a child reads: as appendTask, with the number that its answer
// must carry, how many tasks of its batch are left behind it (-1: there are no batches), the epoch,
// which is useful only during the work, and the context of a traced task.
func appendRequest(ctx context.Context, dst []byte, seq uint64, left int, t *pump.Task) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	if left >= 0 {
		dst = strconv.AppendInt(append(dst, `,"left":`...), int64(left), 10)
	}
	dst = appendIdentity(append(dst, ','), t)
	dst = append(dst, `,"epoch":`...)
	dst = strconv.AppendUint(dst, t.Epoch, 10)
	dst = append(dst, `,"attempt":`...)
	dst = strconv.AppendInt(dst, int64(t.Attempt), 10)
	if parent, state := t.TraceContext(ctx); parent != "" {
		dst = appendString(append(dst, `,"traceparent":`...), []byte(parent))
		if state != "" {
			dst = appendString(append(dst, `,"tracestate":`...), []byte(state))
		}
	}
	dst = appendBody(append(dst, ','), t.Body)
	return append(dst, "}\n"...)
}

func appendIdentity(dst []byte, t *pump.Task) []byte {
	dst = append(dst, `"run":"`...)
	dst = append(dst, t.Run.String()...)
	dst = append(dst, `","segment":`...)
	dst = strconv.AppendUint(dst, uint64(t.Segment), 10)
	dst = append(dst, `,"n":`...)
	dst = strconv.AppendUint(dst, t.N, 10)
	dst = append(dst, ',')
	dst = appendText(dst, "key", t.Key)
	dst = append(dst, `,"id":`...)
	dst = appendString(dst, []byte(t.ID))
	if t.Foreign != "" {
		dst = append(dst, `,"foreign":`...)
		dst = appendString(dst, []byte(t.Foreign))
	}
	return dst
}

// appendBody appends the body as JSON if it is JSON, else as a string, else as bodyBase64.
func appendBody(dst, body []byte) []byte {
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
	return appendString(dst, text)
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

func appendString(dst, s []byte) []byte {
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

// asResult makes a JSON value of what a process printed or an endpoint answered.
func asResult(out []byte) json.RawMessage {
	out = bytes.TrimSpace(out)
	switch {
	case len(out) == 0:
		return nil
	case utf8.Valid(out) && jsonline.Valid(out):
		return bytes.Clone(out)
	case utf8.Valid(out):
		return appendString(nil, out)
	default:
		b, _ := json.Marshal(map[string][]byte{"base64": out})
		return b
	}
}
