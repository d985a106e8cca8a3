package azsim

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxSkew is how far a request's date may be off the server's clock before it
// is refused as a replay (learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key).
const maxSkew = 15 * time.Minute

// challenge answers requests without usable credentials; clients take the tenant from it.
const challenge = "Bearer authorization_uri=https://login.microsoftonline.com/" +
	"00000000-0000-0000-0000-000000000000/oauth2/authorize resource_id=https://storage.azure.com"

// authorise checks that the sender of the request may do the operation; nil if
// so, else the answer. It sets r.keyRange.
func (s *Sim) authorise(c *call, r *request, op *operation) *reply {
	if r.query.Has("sig") {
		return r.authoriseSAS(c, op)
	}
	scheme, value, _ := strings.Cut(r.header.Get("Authorization"), " ")
	value = strings.TrimSpace(value)
	switch scheme {
	case "":
		return r.unauthenticated("NoAuthenticationInformation")
	case "Bearer":
		return s.authoriseBearer(r, value)
	case "SharedKey", "SharedKeyLite":
		return r.authoriseKey(c, value, scheme == "SharedKeyLite")
	}
	return r.unauthenticated("InvalidAuthenticationInfo")
}

func (r *request) unauthenticated(code string) *reply {
	rep := r.fail(http.StatusUnauthorized, code, "")
	rep.header.Set("Www-Authenticate", challenge)
	return &rep
}

// forbidden is 403 AuthenticationFailed with what Azure tells about the reason. The detail never
// holds the key or the right signature.
func (r *request) forbidden(detail string) *reply {
	message := ""
	if r.service == tableService {
		message = messages["AuthenticationFailed"] + " " + detail // its errors have no extra elements
	}
	return new(r.fail(http.StatusForbidden, "AuthenticationFailed", message,
		element{"AuthenticationErrorDetail", detail}))
}

func (s *Sim) authoriseBearer(r *request, token string) *reply {
	if token == "" {
		return r.unauthenticated("InvalidAuthenticationInfo")
	}
	if judge := s.config.Bearer; judge != nil && judge(token, r.now) != nil {
		return r.unauthenticated("InvalidAuthenticationInfo")
	}
	return nil
}

// authoriseKey verifies SharedKey and SharedKeyLite.
func (r *request) authoriseKey(c *call, credential string, lite bool) *reply {
	account, signature, ok := strings.Cut(credential, ":")
	if !ok || account != r.account.name {
		return r.forbidden("The account of the Authorization header is not the one that is addressed.")
	}
	if rep := r.checkDate(); rep != nil {
		return rep
	}
	text := r.stringToSign(c, lite)
	if !r.account.signed(text, signature) {
		return r.forbidden("The MAC signature found in the HTTP request '" + signature +
			"' is not the same as any computed signature. Server used following string to sign: '" +
			text + "'.")
	}
	return nil
}

// checkDate refuses requests whose date is missing or more than maxSkew off.
func (r *request) checkDate() *reply {
	date := cmp.Or(r.header.Get("X-Ms-Date"), r.header.Get("Date"))
	if date == "" {
		return r.forbidden("Either x-ms-date or Date has to be set in the request.")
	}
	t, err := http.ParseTime(date)
	if err != nil {
		return r.forbidden("The Date header in the request is incorrect: '" + date + "'")
	}
	if off := r.now.Sub(t); off > maxSkew || off < -maxSkew {
		return r.forbidden("Request date header too old: '" + date + "'")
	}
	return nil
}

// stringToSign builds what the client has to have signed. Four forms exist: full and lite, for
// queues and for tables (AZURE.md A5). The canonical resource is always "/account" and the path as
// it was sent, which in path style begins with the account a second time.
func (r *request) stringToSign(c *call, lite bool) string {
	h := r.header
	date := h.Get("X-Ms-Date")
	resource := "/" + r.account.name + c.path
	if c.path == "" {
		resource += "/"
	}
	if r.service == tableService {
		date = cmp.Or(date, h.Get("Date"))
		if comp := r.query.Get("comp"); comp != "" {
			resource += "?comp=" + comp
		}
		if lite {
			return date + "\n" + resource
		}
		return join(r.method, h.Get("Content-Md5"), h.Get("Content-Type"), date, resource)
	}
	if date == "" {
		date = h.Get("Date")
	} else {
		date = "" // x-ms-date is among the canonical headers
	}
	if lite {
		if comp := r.query.Get("comp"); comp != "" {
			resource += "?comp=" + comp
		}
		return join(r.method, h.Get("Content-Md5"), h.Get("Content-Type"), date) + "\n" +
			canonicalHeaders(h) + resource
	}
	length := h.Get("Content-Length")
	if length == "0" && r.sinceVersion("2015-02-21") {
		length = ""
	}
	return join(r.method, h.Get("Content-Encoding"), h.Get("Content-Language"), length,
		h.Get("Content-Md5"), h.Get("Content-Type"), date, h.Get("If-Modified-Since"), h.Get("If-Match"),
		h.Get("If-None-Match"), h.Get("If-Unmodified-Since"),
		h.Get("Range")) + "\n" + canonicalHeaders(h) + resource + canonicalQuery(r)
}

func join(lines ...string) string { return strings.Join(lines, "\n") }

// canonicalHeaders is each x-ms- header as "name:value\n", sorted.
func canonicalHeaders(h http.Header) string {
	names := make([]string, 0, 8)
	for k := range h {
		if strings.HasPrefix(k, "X-Ms-") {
			names = append(names, strings.ToLower(k))
		}
	}
	slices.Sort(names)
	var b strings.Builder
	for _, k := range names {
		b.WriteString(k)
		b.WriteByte(':')
		for i, v := range h[http.CanonicalHeaderKey(k)] {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.TrimSpace(v))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// canonicalQuery is each parameter as "\nname:value", sorted by its lower-case
// name; the values of one name are sorted and joined.
func canonicalQuery(r *request) string {
	byName := make(map[string][]string, len(r.query))
	for k, v := range r.query {
		k = strings.ToLower(k)
		byName[k] = append(byName[k], v...)
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(byName)) {
		values := byName[k]
		slices.Sort(values)
		b.WriteString("\n" + k + ":" + strings.Join(values, ","))
	}
	return b.String()
}

// signed reports, in constant time, whether signature is the account's own
// base64 HMAC-SHA256 of text.
func (a *account) signed(text, signature string) bool {
	got, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return false
	}
	var want [sha256.Size]byte
	return hmac.Equal(got, a.mac.Load().sum(want[:0], text))
}

// macPool keeps keyed hashes: making one costs two blocks of SHA-256 and four
// allocations, on every request of a benchmark.
type macPool struct {
	key  []byte
	pool sync.Pool // of hash.Hash
}

func (p *macPool) sum(dst []byte, text string) []byte {
	h, ok := p.pool.Get().(hash.Hash)
	if !ok {
		h = hmac.New(sha256.New, p.key)
	}
	h.Reset()
	_, _ = h.Write([]byte(text)) // never fails
	dst = h.Sum(dst)
	p.pool.Put(h)
	return dst
}
