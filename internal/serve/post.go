package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// maxBody and maxLines bound a post, largeBody one that may have large tasks, firstBytes the part
	// of a body that has the common room.
	maxBody    = 4 << 20
	largeBody  = 16 << 20
	maxLines   = 10_000
	firstBytes = 64 << 10
	firstTime  = 5 * time.Second
	bodyTime   = 20 * time.Second
	answerTime = 10 * time.Second
	// maxKey bounds an Idempotency-Key.
	maxKey = 255
	// again and later are what Retry-After says: where room comes soon, and where it may not.
	again = 1
	later = 5
)

// answer is the body of an answer.
type answer struct {
	Tasks    *int      `json:"tasks,omitempty"` // in queues
	Again    bool      `json:"again,omitempty"` // the key was known
	Error    string    `json:"error,omitempty"`
	Fix      string    `json:"fix,omitempty"`
	Line     int       `json:"line,omitempty"`
	Field    string    `json:"field,omitempty"`
	Outcomes []outcome `json:"outcomes,omitempty"`

	status, retry int
}

// outcome is that of a task that is not known to be in a queue.
type outcome struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

// refusal is the answer to what is not taken.
func refusal(status int, fix, format string, args ...any) *answer {
	return &answer{status: status, Error: fmt.Sprintf(format, args...), Fix: fix}
}

func unavailable(fix, why string) *answer {
	a := refusal(http.StatusServiceUnavailable, fix, "%s", why)
	a.retry = later
	return a
}

// post answers a post.
func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	var a *answer
	if !s.enter() {
		a = unavailable("post to another server, or later", "the server ends")
	} else {
		a = s.take(w, r)
		defer s.under.Done() // after the answer
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if a.status == http.StatusTooManyRequests || a.status == http.StatusRequestTimeout {
		a.retry = again
	}
	if a.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if a.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(a.retry))
	}
	if a.status >= 400 && a.status != http.StatusUnprocessableEntity || s.draining.Load() {
		h.Set("Connection", "close") // the rest of a body may be on its way
	}
	s.answered(a.status)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	w.WriteHeader(a.status)
	text, _ := json.Marshal(a)
	_, _ = w.Write(append(text, '\n'))
}

// take sends the tasks of a request.
func (s *Server) take(w http.ResponseWriter, r *http.Request) *answer {
	if t := s.o.Tokens; t != nil {
		given := r.Header.Get("Authorization")
		if n := len("Bearer "); len(given) > n && strings.EqualFold(given[:n], "Bearer ") {
			given = given[n:]
		}
		status, why := t.Check(configfile.ScopeSend, given)
		if status == http.StatusServiceUnavailable {
			_, err := t.Read()
			s.says.Do(func() { s.o.Log.Error("no post is taken", "error", err) })
			return unavailable("post again later", why)
		} else if why != "" {
			return refusal(status, "send Authorization: Bearer and a token that --token-file has for send",
				"%s", why)
		}
	} else if r.Header.Get("Origin")+r.Header.Get("Sec-Fetch-Site") != "" {
		// Any page that a browser on this machine shows could post to loopback.
		return refusal(http.StatusForbidden, "give --token-file, and send a token",
			"web pages may not post without a token")
	}
	one, a := single(r)
	if a != nil {
		return a
	}
	key := r.Header.Get("Idempotency-Key")
	unprintable := func(c rune) bool { return c < ' ' || c > '~' }
	if given := r.Header.Values("Idempotency-Key"); len(given) > 1 || len(given) == 1 && key == "" ||
		len(key) > maxKey || strings.ContainsFunc(key, unprintable) {
		return refusal(http.StatusBadRequest, "use one, of 1 to 255 characters of ASCII",
			"the Idempotency-Key is not possible")
	}
	body, release, a := s.read(w, r)
	defer release()
	if a != nil {
		return a
	}
	tasks, lines, a := s.tasks(body, one)
	if a != nil {
		return a
	}
	kept := 128 * int64(len(tasks)) // beside their bodies: a body of short lines is the least of it
	if !s.room.TryAcquire(kept) {
		return full(manyBytes)
	}
	defer s.room.Release(kept)
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	did, err := s.o.Sender.Post(ctx, key, tasks...)
	return s.outcomes(did, err, lines, key != "")
}

// said is what a client may know of an error: that of a request names accounts and tables.
func (s *Server) said(err error) string {
	if _, asked := errors.AsType[*storage.Error](err); !asked {
		return err.Error()
	}
	s.says.Do(func() { s.o.Log.Error("tasks could not be put", "error", err) })
	return "the accounts do not take them now"
}

// single reports whether the body is one task.
func single(r *http.Request) (one bool, a *answer) {
	said := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(said)
	charset := strings.ToLower(cmp.Or(params["charset"], "utf-8"))
	if err != nil || charset != "utf-8" && charset != "us-ascii" {
		kind = said
	}
	if r.Header.Get("Content-Encoding") != "" {
		return false, refusal(http.StatusUnsupportedMediaType, "post it as it is",
			"a body with a Content-Encoding is not read")
	}
	switch kind {
	case "application/json":
		return true, nil
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "text/plain", "",
		"application/x-www-form-urlencoded", "application/octet-stream": // what clients say by default
		return false, nil
	}
	return false, refusal(http.StatusUnsupportedMediaType,
		"use application/x-ndjson for lines, application/json for one task, in UTF-8", "%q is not read",
		kind)
}

// read reads the body. The buffer's bytes are taken from the room until release is called.
func (s *Server) read(
	w http.ResponseWriter, r *http.Request,
) (b []byte, release func(), a *answer) {
	held, beyond := int64(0), int64(0)
	release = func() {
		s.room.Release(held)
		s.held.Add(-held)
	}
	defer func() { s.large.Release(beyond) }()
	control, began := http.NewResponseController(w), time.Now()
	most, fix := maxBody, "divide it into several posts, each with a key of its own; a larger task "+
		"needs distributor serve --blob-above"
	if s.o.Large {
		most, fix = largeBody, "divide it into several posts, each with a key of its own; send a larger "+
			"task by distributor run --blob-above"
	}
	tooLarge := refusal(http.StatusRequestEntityTooLarge, fix, "the body has more than %d bytes", most)
	if r.ContentLength > int64(most) {
		return nil, release, tooLarge
	}
	_ = control.SetReadDeadline(began.Add(firstTime))
	for {
		if len(b) == cap(b) {
			more := int64(max(cap(b), 4<<10))
			if r.ContentLength > 0 && int64(cap(b))+more > r.ContentLength {
				more = max(r.ContentLength+1-int64(cap(b)), 1<<10)
			}
			if cap(b) >= firstBytes {
				_ = control.SetReadDeadline(began.Add(bodyTime))
				if !s.large.TryAcquire(more) {
					return nil, release, full(manyBytes)
				}
				beyond += more
			}
			if !s.room.TryAcquire(more) {
				return nil, release, full(manyBytes)
			}
			held += more
			s.held.Add(more)
			b = append(make([]byte, 0, int64(cap(b))+more), b...)
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > most:
			return nil, release, tooLarge
		case err == io.EOF:
			_ = control.SetReadDeadline(time.Time{}) // or its end is taken for the client's
			return b, release, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, release, refusal(http.StatusRequestTimeout, "post less at a time",
				"the body did not come within %v", time.Since(began).Round(time.Second))
		case err != nil:
			return nil, release, refusal(http.StatusBadRequest, "post it again", "the body ended early")
		}
	}
}

func full(why string) *answer {
	return refusal(http.StatusTooManyRequests, "post it again later", "%s", why)
}

// manyBytes is why a body is not taken now.
const manyBytes = "as many bytes wait for the accounts as may"

// tasks cuts a body into tasks, and says in which line each stands.
func (s *Server) tasks(body []byte, one bool) (tasks []source.Record, lines []int, a *answer) {
	c := s.scanners.Get().(*jsonline.Task)
	defer s.scanners.Put(c)
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	for line := 1; len(body) > 0; line++ {
		text, rest, _ := bytes.Cut(body, []byte("\n"))
		if one {
			text, rest = body, nil
		}
		body = rest
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		if one && text[0] == '[' {
			return nil, nil, refusal(http.StatusBadRequest,
				"post each element as a line, with Content-Type: application/x-ndjson",
				"an array is not one task")
		}
		if len(tasks) == maxLines {
			return nil, nil, refusal(http.StatusRequestEntityTooLarge,
				"divide it into several posts, each with a key of its own",
				"the body has more than %d tasks", maxLines)
		}
		key, id, field, err := c.Read(text)
		if err == nil && !utf8.Valid(text) {
			err = fmt.Errorf("it is not UTF-8 (byte %d)", bytes.IndexRune(text, utf8.RuneError)+1)
		}
		if err != nil {
			fix := "mend the line and post all of it again; for one task of several lines use " +
				"Content-Type: application/json"
			if one {
				fix = "mend it and post it again; for a task on each line use " +
					"Content-Type: application/x-ndjson"
			} else if text[0] == '[' {
				fix = "post each element of the array as a line"
			}
			a := refusal(http.StatusBadRequest, fix, "line %d: %v", line, err)
			a.Line, a.Field = line, field
			return nil, nil, a
		}
		rec := source.Record{Key: slices.Clone(key), ID: string(id), Body: text}
		tasks, lines = append(tasks, rec), append(lines, line)
	}
	if len(tasks) == 0 {
		return nil, nil, refusal(http.StatusBadRequest, "post a line of JSON for each task",
			"there is no task in the body")
	}
	return tasks, lines, nil
}

// outcomes is the answer to what became of the tasks.
func (s *Server) outcomes(did distributor.Posted, err error, lines []int, keyed bool) *answer {
	tasks := len(lines)
	a := &answer{status: http.StatusOK, Tasks: &tasks, Again: did.Again}
	for i, why := range did.Errs {
		if why != nil {
			tasks--
			a.Outcomes = append(a.Outcomes, outcome{lines[i], s.said(why)})
		}
	}
	if err == nil && len(a.Outcomes) == 0 {
		return a
	}
	_, config := errors.AsType[*pump.ConfigError](err)
	switch {
	case errors.Is(err, codec.ErrTaskTooLarge):
		bad := a.Outcomes[0]
		fix := "start it so: distributor serve --blob-above 40KiB"
		if s.o.Large {
			fix = "put the data into a blob, and post its address"
		}
		a = refusal(http.StatusRequestEntityTooLarge, fix,
			"line %d: %s", bad.Line, bad.Error)
		a.Line = bad.Line
		return a
	case errors.Is(err, distributor.ErrOtherTasks):
		return refusal(http.StatusUnprocessableEntity, "use another key for other tasks", "%v", err)
	case errors.Is(err, distributor.ErrKeyOver):
		return refusal(http.StatusConflict,
			"find out whether the tasks are done; another key sends them again", "%v", err)
	case errors.Is(err, distributor.ErrManyKeys):
		return full(err.Error())
	case config:
		return refusal(http.StatusBadRequest, "leave the Idempotency-Key out", "%v", err)
	}
	a.Fix = "post what is listed again; what was sent after all is then sent twice"
	if a.status = http.StatusMultiStatus; tasks == 0 {
		a = unavailable("post all of it again; what was sent after all is then sent twice", s.said(err))
	}
	if keyed {
		a.Fix = "post all of it again with the same Idempotency-Key"
	}
	return a
}
