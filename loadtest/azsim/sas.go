package azsim

import (
	"cmp"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// sasToken are the fields of a shared access signature, once the stored access
// policy it may name has been filled in.
type sasToken struct {
	start, expiry time.Time
	permission    string
}

// authoriseSAS verifies a service or account SAS: signature, times, address, protocol, and that it
// covers the operation (learn.microsoft.com/rest/api/storageservices/create-service-sas and
// .../create-account-sas).
func (r *request) authoriseSAS(c *call, op *operation) *reply {
	q := r.query
	isAccount := q.Has("srt") || q.Has("ss")
	if q.Get("sv") == "" {
		return r.forbidden("The SAS has no sv.")
	}
	text := r.serviceStringToSign(op)
	if isAccount {
		text = r.accountStringToSign()
	}
	if !r.account.signed(text, q.Get("sig")) {
		return r.forbidden("Signature did not match. String to sign used was " + text)
	}
	token, rep := r.readSAS(op, isAccount)
	if rep != nil {
		return rep
	}
	if rep := r.checkSASTimes(token); rep != nil {
		return rep
	}
	if rep := r.checkSASOrigin(c); rep != nil {
		return rep
	}
	if isAccount {
		return r.checkAccountScope(op, token)
	}
	return r.checkServiceScope(op, token)
}

// serviceStringToSign is what a service SAS signs, in the form of version
// 2015-04-05 and later: tables add their key ranges.
func (r *request) serviceStringToSign(op *operation) string {
	q := r.query
	object := op.object
	if r.service == tableService {
		object = strings.ToLower(object)
	}
	text := join(q.Get("sp"), q.Get("st"), q.Get("se"),
		"/"+string(r.service)+"/"+r.account.name+"/"+object, q.Get("si"), q.Get("sip"), q.Get("spr"),
		q.Get("sv"))
	if r.service == tableService {
		text = join(text, q.Get("spk"), q.Get("srk"), q.Get("epk"), q.Get("erk"))
	}
	return text
}

// accountStringToSign is what an account SAS signs; the encryption scope came
// with version 2020-12-06. It ends with a newline.
func (r *request) accountStringToSign() string {
	q := r.query
	text := join(r.account.name, q.Get("sp"), q.Get("ss"), q.Get("srt"), q.Get("st"), q.Get("se"),
		q.Get("sip"), q.Get("spr"), q.Get("sv"), "")
	if q.Get("sv") >= "2020-12-06" {
		text += q.Get("ses") + "\n"
	}
	return text
}

// readSAS reads the token's fields and those of the policy it names. What the
// policy says cannot be said again by the token.
func (r *request) readSAS(op *operation, isAccount bool) (sasToken, *reply) {
	q := r.query
	token := sasToken{permission: q.Get("sp")}
	var ok bool
	if token.start, ok = parseSASTime(q.Get("st")); !ok {
		return token, r.forbidden("Signature not valid in the specified time frame: st is not a time.")
	}
	if token.expiry, ok = parseSASTime(q.Get("se")); !ok {
		return token, r.forbidden("Signature not valid in the specified time frame: se is not a time.")
	}
	if id := q.Get("si"); id != "" && !isAccount {
		return r.fillIn(token, op, id)
	}
	return token, nil
}

func (r *request) fillIn(token sasToken, op *operation, id string) (sasToken, *reply) {
	policies, _ := r.account.backend(r.service).policies(op.object)
	for _, p := range policies {
		if p.id != id {
			continue
		}
		for _, f := range []struct {
			name  string
			twice bool
		}{
			{"st", !token.start.IsZero() && !p.start.IsZero()},
			{"se", !token.expiry.IsZero() && !p.expiry.IsZero()},
			{"sp", token.permission != "" && p.permission != ""},
		} {
			if f.twice {
				return token, new(badParameter(r, f.name, r.query.Get(f.name),
					"The field is also specified by the stored access policy."))
			}
		}
		if token.start.IsZero() {
			token.start = p.start
		}
		if token.expiry.IsZero() {
			token.expiry = p.expiry
		}
		token.permission = cmp.Or(token.permission, p.permission)
		return token, nil
	}
	return token, r.forbidden("Stored access policy not found.")
}

func (r *request) checkSASTimes(t sasToken) *reply {
	if t.expiry.IsZero() {
		return r.forbidden("The SAS has no expiry.")
	}
	if !r.now.Before(t.expiry) || r.now.Before(t.start) {
		return r.forbidden("Signature not valid in the specified time frame: Start [" +
			t.start.Format(http.TimeFormat) +
			"] - Expiry [" + t.expiry.Format(http.TimeFormat) + "] - Current [" +
			r.now.Format(http.TimeFormat) + "]")
	}
	return nil
}

// checkSASOrigin checks where the request comes from and how.
func (r *request) checkSASOrigin(c *call) *reply {
	switch r.query.Get("spr") {
	case "", "https,http", "http,https":
	case "https":
		if !c.secure {
			return r.refused("AuthorizationProtocolMismatch")
		}
	default:
		return r.forbidden("The SAS allows no protocol that is known.")
	}
	if sip := r.query.Get("sip"); sip != "" && !addressIn(sip, c.from) {
		return r.refused("AuthorizationSourceIPMismatch")
	}
	return nil
}

// addressIn reports whether an address lies in "from" or "from-to".
func addressIn(sip string, addr netip.Addr) bool {
	from, to, ranged := strings.Cut(sip, "-")
	first, err := netip.ParseAddr(from)
	if err != nil {
		return false
	}
	last := first
	if ranged {
		if last, err = netip.ParseAddr(to); err != nil {
			return false
		}
	}
	return addr.IsValid() && first.Unmap().Compare(addr) <= 0 && addr.Compare(last.Unmap()) <= 0
}

func (r *request) refused(code string) *reply {
	return new(r.fail(http.StatusForbidden, code, ""))
}

func (r *request) checkAccountScope(op *operation, t sasToken) *reply {
	switch {
	case !strings.Contains(r.query.Get("ss"), string(r.service[:1])):
		return r.refused("AuthorizationServiceMismatch")
	case op.resource == 0 || !strings.Contains(r.query.Get("srt"), string(op.resource)):
		return r.refused("AuthorizationResourceTypeMismatch")
	case !allows(t.permission, op.accountPermission):
		return r.refused("AuthorizationPermissionMismatch")
	}
	return nil
}

func (r *request) checkServiceScope(op *operation, t sasToken) *reply {
	if op.object == "" || op.permission == "" { // it is for what lies in one queue or table
		return r.refused("AuthorizationFailure")
	}
	if r.service == tableService {
		if tn := r.query.Get("tn"); !strings.EqualFold(tn, op.object) {
			return r.forbidden("The SAS is for another table.")
		}
		r.keyRange = keyRange{
			r.query.Get("spk"), r.query.Get("srk"), r.query.Get("epk"), r.query.Get("erk"),
		}
		for _, k := range op.keys {
			if !r.keyRange.holds(k[0], k[1]) {
				return r.refused("AuthorizationFailure")
			}
		}
	}
	if !allows(t.permission, op.permission) {
		return r.refused("AuthorizationPermissionMismatch")
	}
	return nil
}

// allows reports whether the granted letters include all letters of an alternative of need (see
// operation.permission).
func allows(granted, need string) bool {
	lacking := func(letter rune) bool { return !strings.ContainsRune(granted, letter) }
	for alternative := range strings.SplitSeq(need, ",") {
		if alternative != "" && !strings.ContainsFunc(alternative, lacking) {
			return true
		}
	}
	return false
}
