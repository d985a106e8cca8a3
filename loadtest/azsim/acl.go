package azsim

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"strings"
	"time"
)

// maxPolicies is the most stored access policies of a queue or table, and maxPolicyID the most
// characters of a policy's name
// (learn.microsoft.com/rest/api/storageservices/define-stored-access-policy).
const (
	maxPolicies = 5
	maxPolicyID = 64
)

// aclError is a set of policies that cannot be stored.
type aclError struct {
	node, value string // "" if the document itself is wrong
}

// aclDoc is the document of Set Queue ACL and Set Table ACL.
type aclDoc struct {
	XMLName xml.Name `xml:"SignedIdentifiers"`
	List    []struct {
		ID     string `xml:"Id"`
		Policy struct {
			Start      string `xml:"Start"`
			Expiry     string `xml:"Expiry"`
			Permission string `xml:"Permission"`
		} `xml:"AccessPolicy"`
	} `xml:"SignedIdentifier"`
}

// parseACL reads a SignedIdentifiers document whose permissions are among letters; a missing body
// is an empty set.
func parseACL(body []byte, letters string) ([]signedIdentifier, *aclError) {
	body = bytes.TrimPrefix(body, []byte(bom))
	if len(body) == 0 {
		return nil, nil
	}
	var doc aclDoc
	if err := xml.Unmarshal(body, &doc); err != nil || len(doc.List) > maxPolicies {
		return nil, &aclError{}
	}
	seen := make(map[string]bool)
	var out []signedIdentifier
	for _, d := range doc.List {
		p := signedIdentifier{id: d.ID, permission: d.Policy.Permission}
		var startOK, expiryOK bool
		p.start, startOK = parseSASTime(d.Policy.Start)
		p.expiry, expiryOK = parseSASTime(d.Policy.Expiry)
		switch {
		case d.ID == "" || seen[d.ID] || len(d.ID) > maxPolicyID:
			return nil, &aclError{}
		case !startOK:
			return nil, &aclError{"Start", d.Policy.Start}
		case !expiryOK:
			return nil, &aclError{"Expiry", d.Policy.Expiry}
		case strings.Trim(p.permission, letters) != "":
			return nil, &aclError{"Permission", p.permission}
		}
		seen[d.ID] = true
		out = append(out, p)
	}
	return out, nil
}

// answer is the refusal of the queue service.
func (e *aclError) answer(r *request) reply {
	if e.node == "" {
		return r.fail(http.StatusBadRequest, "InvalidXmlDocument", "")
	}
	return r.fail(http.StatusBadRequest, "InvalidXmlNodeValue", "",
		element{"XmlNodeName", e.node}, element{"XmlNodeValue", e.value})
}

// renderACL writes a SignedIdentifiers document.
func renderACL(acl []signedIdentifier) []byte {
	if len(acl) == 0 {
		return []byte(xmlProlog + "<SignedIdentifiers />")
	}
	b := []byte(xmlProlog + "<SignedIdentifiers>")
	for _, p := range acl {
		b = append(b, "<SignedIdentifier>"...)
		b = appendElement(b, "Id", p.id)
		if p.start.IsZero() && p.expiry.IsZero() && p.permission == "" {
			b = append(b, "</SignedIdentifier>"...) // as recorded: no empty AccessPolicy
			continue
		}
		b = append(b, "<AccessPolicy>"...)
		if !p.start.IsZero() {
			b = appendElement(b, "Start", p.start.UTC().Format(errorTimeFormat))
		}
		if !p.expiry.IsZero() {
			b = appendElement(b, "Expiry", p.expiry.UTC().Format(errorTimeFormat))
		}
		if p.permission != "" {
			b = appendElement(b, "Permission", p.permission)
		}
		b = append(b, "</AccessPolicy></SignedIdentifier>"...)
	}
	return append(b, "</SignedIdentifiers>"...)
}

// parseSASTime reads a time of a SAS or a policy; "" is the zero time.
func parseSASTime(text string) (time.Time, bool) {
	if text == "" {
		return time.Time{}, true
	}
	if _, fraction, _ := strings.Cut(text, "."); len(fraction) > 7 && fraction[7] >= '0' &&
		fraction[7] <= '9' {
		return time.Time{}, false // 100 ns is all that the services know
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}
