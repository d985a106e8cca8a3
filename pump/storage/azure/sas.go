package azure

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// EndsSoon is how long before its end a shared access signature is worth a warning: as long as a
// holiday.
const EndsSoon = 7 * 24 * time.Hour

// SignatureEnds is when the first of the account's shared access signatures ends; zero: the account
// has none, or it does not say when.
func (o Options) SignatureEnds() (first time.Time) {
	note := func(query string) {
		values, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
		if err != nil || values.Get("sig") == "" {
			return
		}
		if at, ok := timeOf(values.Get("se")); ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for field := range strings.SplitSeq(o.ConnectionString, ";") {
		if name, value, _ := strings.Cut(field, "="); strings.EqualFold(strings.TrimSpace(name),
			"SharedAccessSignature") {
			note(strings.TrimSpace(value))
		} else if _, query, found := strings.Cut(value, "?"); found {
			note(query)
		}
	}
	for _, endpoint := range []string{o.Endpoint, o.TableEndpoint, o.BlobEndpoint} {
		if _, query, found := strings.Cut(endpoint, "?"); found {
			note(query)
		}
	}
	return first
}

// signatureSays tells why the account's shared access signature, if it has one, is refused, by the
// clock of the answer.
func (a *account) signatureSays(answer http.Header) string {
	q, err := url.ParseQuery(cmp.Or(a.queueURL.RawQuery, a.tableSAS))
	if err != nil || q.Get("sig") == "" {
		return ""
	}
	now, err := http.ParseTime(answer.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	if at, ok := timeOf(q.Get("st")); ok && now.Before(at) {
		return " (its shared access signature begins only at " + at.Format(time.RFC3339) + ")"
	}
	if at, ok := timeOf(q.Get("se")); ok && !now.Before(at) {
		return " (its shared access signature has ended at " + at.Format(time.RFC3339) + ")"
	}
	return " (by its shared access signature)"
}

// timeOf reads a time of a shared access signature.
func timeOf(s string) (at time.Time, ok bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, true
		}
	}
	return at, false
}
