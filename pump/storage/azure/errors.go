package azure

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/storage"
)

// refused makes the error of an answer other than the wanted one.
func (a *account) refused(op, object string, x *exchange) error {
	service, message := serviceError(x.header, x.answer)
	if service == "InvalidHeaderValue" && perhapsVersion(x.answer) {
		message += unknownVersion
	}
	if codeOf(x.status, service, x.row) == storage.Auth {
		message += a.signatureSays(x.header)
	}
	e := a.failure(op, object, x.status, service, message, x.row)
	e.RetryAfter = retryAfter(x.header)
	inID := func(c byte) bool { return letter(c) || digit(c) || c == '-' }
	if id := x.header.Get("x-ms-request-id"); within(id, 1, 64, inID) {
		// What Microsoft's support asks for first.
		e.Err = a.hide.error(errors.New(strings.TrimPrefix(message+" (request "+id+")", " ")))
	}
	return e
}

func (a *account) failure(
	op, object string, status int, service, message string, row bool,
) *storage.Error {
	e := &storage.Error{
		Code: codeOf(status, service, row), Op: op, Account: a.name, Object: object,
		Status: status, Service: service, Index: -1,
	}
	if message != "" {
		e.Err = a.hide.error(errors.New(message))
	}
	return e
}

// codeOf is the one place where a status and a service code become what a
// caller may conclude. The service code decides where it says more than the
// status; a status that is not explained here is "maybe done". row says that the
// request needs a row to be there: only then ResourceNotFound is about the row,
// for all others it is about the table or the account.
func codeOf(status int, service string, row bool) storage.Code {
	switch service {
	case "QueueNotFound", "TableNotFound", // the common case of Missing
		"QueueBeingDeleted", "TableBeingDeleted", "QueueDisabled", // 409
		"AccountIsDisabled",   // 403, but no other credential would help
		"AccountBeingCreated", // 409
		"AccountNotFound",     // in no list read; costs nothing
		"ContainerNotFound", "ContainerDisabled",
		"ContainerBeingDeleted": // also the common list's word for queues and tables
		return storage.Missing
	case "MessageNotFound", "EntityNotFound", "BlobNotFound":
		return storage.Gone
	case "PopReceiptMismatch":
		// Documented for a receipt that is no longer the newest, and Azurite's answer. Azure has only
		// been seen to answer 404 MessageNotFound there.
		return storage.Gone
	case "ResourceNotFound":
		if row {
			return storage.Gone
		}
		return storage.Missing
	case "EntityAlreadyExists":
		return storage.Exists
	case "UpdateConditionNotSatisfied", "ConditionNotMet":
		return storage.Precondition
	case "MessageTooLarge", "RequestBodyTooLarge", "EntityTooLarge", "PropertyValueTooLarge",
		"KeyValueTooLarge", "PropertyNameTooLong", "TooManyProperties":
		return storage.TooLarge
	// 400, 401 or 403
	case "InvalidAuthenticationInfo", "NoAuthenticationInformation", "AuthenticationFailed":
		return storage.Auth
	case "ServerBusy", "OperationTimedOut":
		// An overloaded partition shows as either.
		return storage.Throttled
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return storage.Auth
	case http.StatusPreconditionFailed:
		return storage.Precondition
	case http.StatusRequestEntityTooLarge:
		return storage.TooLarge
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return storage.Throttled
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusLengthRequired, http.StatusRequestURITooLong, http.StatusUnsupportedMediaType,
		http.StatusRequestedRangeNotSatisfiable, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusNotImplemented:
		return storage.Invalid
	}
	// The rest is: 5xx other than the above; 408; a 404 or 409 whose code is unknown, for example from
	// a proxy: it may be about the message, the queue or the way there; redirects; a success with the
	// wrong status. None of these proves that nothing was done.
	return storage.MaybeDone
}

// serviceError reads an error answer: the service's code, and the first line of
// its message. Table answers carry the code in their JSON only.
func serviceError(h http.Header, body []byte) (code, message string) {
	body = trimBOM(body)
	if i := bytes.IndexFunc(body, func(r rune) bool {
		return r != ' ' && r != '\r' && r != '\n' && r != '\t'
	}); i > 0 {
		body = body[i:]
	}
	switch {
	case len(body) > 0 && body[0] == '{':
		var doc struct {
			Error struct {
				Code    string `json:"code"`
				Message struct {
					Value string `json:"value"`
				} `json:"message"`
			} `json:"odata.error"`
		}
		if json.Unmarshal(body, &doc) == nil {
			code, message = doc.Error.Code, doc.Error.Message.Value
		}
	case len(body) > 0 && body[0] == '<':
		var doc struct {
			XMLName xml.Name `xml:"Error"`
			Code    string   `xml:"Code"`
			Message string   `xml:"Message"`
		}
		if xml.Unmarshal(body, &doc) == nil {
			code, message = doc.Code, doc.Message
		}
	}
	if c := h.Get("x-ms-error-code"); c != "" {
		code = c
	}
	if !within(code, 1, 64, func(c byte) bool { return letter(c) || digit(c) }) {
		code = "" // the service has no such codes, and the text goes into logs
	}
	return code, firstLine(message)
}

// firstLine drops the request id and time that follow in a service's message, and bounds how much
// an answer can put into a log.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > longestMessage {
		// At the end of a sentence, if there is one: what follows is a string to sign.
		if end := strings.LastIndex(s[:longestMessage], ". "); end > 0 {
			s = s[:end+1]
		}
	}
	return printable(s, longestMessage)
}

// longestMessage bounds a service's message, in bytes.
const longestMessage = 300

// printable is a text that can only be read: it does nothing else to a terminal or a log.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strings.TrimSpace(s)
}

// longestRetryAfter bounds the pause that an answer can ask for: a proxy may say an hour, and be
// well a minute later.
const longestRetryAfter = time.Minute

// retryAfter reads the pause asked for, in any of the forms that Microsoft's
// services and the proxies before them use: milliseconds, seconds, a date. A
// date is compared with the answer's own Date, so that this machine's clock
// does not matter.
func retryAfter(h http.Header) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if n, err := strconv.ParseFloat(strings.TrimSpace(h.Get(name)), 64); err == nil {
			return pause(n * float64(time.Millisecond))
		}
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		return pause(n * float64(time.Second))
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return pause(float64(at.Sub(now)))
}

func pause(ns float64) time.Duration {
	switch {
	case !(ns > 0): // NaN too
		return 0
	case ns > float64(longestRetryAfter):
		return longestRetryAfter
	}
	return time.Duration(ns)
}

// redactor keeps secrets out of error texts: the account's own, letter for letter, and all that
// looks like one.
type redactor []string

func (r redactor) text(s string) string {
	for _, secret := range r {
		s = strings.ReplaceAll(s, secret, "REDACTED")
	}
	return logs.Cleaned(s)
}

// error gives an error with err's text, cleaned. The original is not in its
// chain, since printing that would show the secrets again, but errors.Is still
// finds what was in it (a deadline, an end of file).
func (r redactor) error(err error) error {
	if err == nil {
		return nil
	}
	return &cause{text: printable(r.text(err.Error()), 1000), is: err}
}

type cause struct {
	text string
	is   error
}

func (c *cause) Error() string        { return c.text }
func (c *cause) Is(target error) bool { return errors.Is(c.is, target) }
