package storagetest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Doer sends HTTP requests: an http.Client, or the simulator in process.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Fault is what a [Wire] does to a request.
type Fault uint8

// The faults.
const (
	LoseRequest Fault = iota + 1 // the server never sees it; the connection breaks
	LoseAnswer                   // the server acts; the connection breaks before the answer
	CutAnswer                    // the server acts; the connection breaks in the middle of the answer
	// the server acts; something between answers 200 with a page of its own
	GarbleAnswer
	Busy     // 503 ServerBusy with a Retry-After of 7 s, and the server never sees it
	TimedOut // 500 OperationTimedOut after the server acted
	Broken   // 500 InternalError after the server acted
	Hang     // the server acts; the answer never comes
)

var errBroken = errors.New("the wire was cut (sig=not-for-the-log)")

// Wire is a transport that counts requests and breaks those it is told to. The
// zero value breaks nothing.
type Wire struct {
	mu       sync.Mutex
	fault    Fault
	left     int
	requests int
}

// Break applies fault to the next n requests.
func (w *Wire) Break(fault Fault, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.left = fault, n
}

// Requests is the number of requests so far.
func (w *Wire) Requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests
}

// Through puts the wire before next.
func (w *Wire) Through(next Doer) Doer { return wired{w, next} }

type wired struct {
	*Wire
	next Doer
}

func (w wired) Do(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.requests++
	var fault Fault
	if w.left > 0 {
		fault = w.fault
		w.left--
	}
	w.mu.Unlock()
	switch fault {
	case 0:
		return w.next.Do(req)
	case LoseRequest:
		return nil, errBroken
	case Busy:
		return answer(req, http.StatusServiceUnavailable, "ServerBusy", "7"), nil
	}
	resp, err := w.next.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	switch fault {
	case LoseAnswer:
		return nil, errBroken
	case TimedOut:
		return answer(req, http.StatusInternalServerError, "OperationTimedOut", ""), nil
	case Broken:
		return answer(req, http.StatusInternalServerError, "InternalError", ""), nil
	case Hang:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case GarbleAnswer:
		resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
		resp.Header = http.Header{"Content-Type": {"text/html"}}
		body = []byte("<html><body>Please log in to the network</body></html>")
		resp.ContentLength = int64(len(body))
	case CutAnswer:
		if len(body) > 0 {
			resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), brokenReader{}))
			return resp, nil
		}
		return nil, errBroken // nothing of a bare head can be missing but the head
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

// answer makes an error answer in the form of the queue service.
func answer(req *http.Request, status int, code, retryAfter string) *http.Response {
	body := "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>" + code + "</Code>" +
		"<Message>Made by the wire.\nRequestId:0\nTime:0</Message></Error>"
	h := http.Header{
		"Content-Type": {"application/xml"}, "X-Ms-Error-Code": {code},
		"Content-Length": {strconv.Itoa(len(body))},
	}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: req,
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}
