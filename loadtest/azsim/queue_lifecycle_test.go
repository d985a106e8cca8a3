package azsim

import (
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// Pages cited here: learn.microsoft.com/rest/api/storageservices/create-queue4,
// .../delete-queue3, .../list-queues1, .../set-queue-metadata, .../naming-queues-and-metadata.

// create-queue4: "If a queue with the specified name and identical metadata
// already exists, status code 204; otherwise 409" (Q01-Q03).
func TestCreatingAQueueAgainDependsOnItsMetadata(t *testing.T) {
	w, _ := newRaw(t, Config{})
	w.want(201, "", "PUT", "/queue", "", "x-ms-meta-colour", "red")
	w.want(204, "", "PUT", "/queue", "", "x-ms-meta-colour", "red")
	w.want(409, "QueueAlreadyExists", "PUT", "/queue", "", "x-ms-meta-colour", "blue")
	w.want(409, "QueueAlreadyExists", "PUT", "/queue", "")
}

// naming-queues-and-metadata: lower-case letters, digits and dashes, 3 to 63,
// no dash at an end nor beside another (Q04).
func TestQueueNamesFollowTheNamingRules(t *testing.T) {
	w, _ := newRaw(t, Config{})
	for _, name := range []string{"abc", "a-b-c", "0-0", strings.Repeat("q", 63)} {
		w.want(201, "", "PUT", "/"+name, "")
	}
	for _, name := range []string{"Abc", "a_b", "-abc", "abc-", "a--b", "a.b", "%C3%A4bc", "a%20b"} {
		w.want(400, "InvalidResourceName", "PUT", "/"+name, "")
	}
	for _, name := range []string{"ab", strings.Repeat("q", 64)} {
		w.want(400, "OutOfRangeInput", "PUT", "/"+name, "")
	}
}

// delete-queue3: "When a queue is deleted, a queue with the same name can't be
// created for at least 30 seconds"; until then 409 QueueBeingDeleted (Q92).
func TestADeletedQueuesNameStaysTakenForThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newQueue(t)
		w.put("queue", "x", "")
		w.want(204, "", "DELETE", "/queue", "")
		w.want(404, "QueueNotFound", "DELETE", "/queue", "") // Q91
		w.want(404, "QueueNotFound", "POST", "/queue/messages", text("x"))
		w.want(404, "QueueNotFound", "GET", "/queue?comp=metadata", "")
		time.Sleep(30*time.Second - time.Nanosecond)
		w.want(409, "QueueBeingDeleted", "PUT", "/queue", "")
		time.Sleep(time.Nanosecond)
		w.want(201, "", "PUT", "/queue", "")
		proof.Same(t, len(w.peek("queue")), 0, "the new queue holds … messages of the old one")
	})
}

func TestTheNameOfADeletedQueueIsFreeAtOnceIfSoConfigured(t *testing.T) {
	w, _ := newRaw(t, Config{BeingDeleted: -1})
	for range 200 { // also through several sweeps of old names
		w.want(201, "", "PUT", "/queue", "")
		w.want(204, "", "DELETE", "/queue", "")
	}
}

// set-queue-metadata: "Each call to this operation replaces all existing metadata".
func TestMetadataIsReplacedAsAWhole(t *testing.T) {
	w, _ := newRaw(t, Config{})
	w.want(201, "", "PUT", "/queue", "", "x-ms-meta-One", "1", "x-ms-meta-two", "2")
	w.want(204, "", "PUT", "/queue?comp=metadata", "", "x-ms-meta-three", "3")
	h := w.want(200, "", "GET", "/queue?comp=metadata", "").header
	if h.Get("x-ms-meta-three") != "3" || h.Get("x-ms-meta-one") != "" || h.Get("x-ms-meta-two") != "" {
		t.Errorf("%v", h)
	}
	w.want(400, "InvalidMetadata", "PUT", "/queue?comp=metadata", "", "x-ms-meta-1st", "x")
	w.want(400, "InvalidMetadata", "PUT", "/queue?comp=metadata", "", "x-ms-meta-a-b", "x")
	w.want(400, "EmptyMetadataKey", "PUT", "/queue?comp=metadata", "", "x-ms-meta-", "x")
	w.want(400, "MetadataTooLarge", "PUT", "/queue?comp=metadata", "", "x-ms-meta-a", strings.Repeat("x", 8<<10))
	w.want(404, "QueueNotFound", "PUT", "/nosuch?comp=metadata", "")
}

// get-queue-metadata: the approximate count "is not lower than the actual
// number of messages in the queue, but could be higher"; invisible ones count (Q44).
func TestTheApproximateCountIncludesInvisibleMessages(t *testing.T) {
	w, _ := newQueue(t)
	for range 3 {
		w.put("queue", "x", "")
	}
	w.put("queue", "x", "?visibilitytimeout=60")
	w.get("queue", "?numofmessages=2")
	proof.Same(t, w.do("GET", "/queue?comp=metadata", "").header.Get("x-ms-approximate-messages-count"), "4", "counted")
}

// list is the answer of List Queues.
type list struct {
	Queues []struct {
		Name     string `xml:"Name"`
		Metadata struct {
			Colour string `xml:"colour"`
		} `xml:"Metadata"`
	} `xml:"Queues>Queue"`
	NextMarker string `xml:"NextMarker"`
}

func (w raw) list(query string) list {
	w.t.Helper()
	var l list
	a := w.want(200, "", "GET", "/?comp=list"+query, "")
	must(w.t, xml.Unmarshal([]byte(strings.TrimPrefix(a.body, bom)), &l))
	return l
}

// list-queues1: prefix, marker, maxresults, include=metadata.
func TestQueuesAreListedInPagesByName(t *testing.T) {
	w, _ := newRaw(t, Config{})
	for i := range 7 {
		w.want(201, "", "PUT", fmt.Sprintf("/q-%d", i), "", "x-ms-meta-colour", "red")
	}
	w.create("other")
	w.want(204, "", "DELETE", "/q-6", "")
	var names []string
	marker := ""
	for page := 0; ; page++ {
		l := w.list("&prefix=q-&maxresults=4&marker=" + marker)
		for _, q := range l.Queues {
			names = append(names, q.Name)
			proof.Same(t, q.Metadata.Colour, "", "metadata that was not asked")
		}
		if marker = l.NextMarker; marker == "" {
			proof.Same(t, page, 1, "the last page")
			break
		}
	}
	proof.Same(t, strings.Join(names, " "), "q-0 q-1 q-2 q-3 q-4 q-5", "listed")
	if l := w.list("&include=metadata&prefix=q-0"); len(l.Queues) != 1 || l.Queues[0].Metadata.Colour != "red" {
		t.Errorf("%+v", l)
	}
	proof.Same(t, len(w.list("&prefix=none").Queues), 0)
	w.want(400, "OutOfRangeQueryParameterValue", "GET", "/?comp=list&maxresults=0", "")
	w.want(400, "InvalidQueryParameterValue", "GET", "/?comp=list&marker=garbage", "")
	if l := w.list("&maxresults=9999"); len(l.Queues) != 7 { // more than 5,000 is taken as 5,000
		t.Errorf("%d queues", len(l.Queues))
	}
}

// set-queue-acl: "up to five stored access policies".
func TestAccessPoliciesAreKeptAsTheyWereSet(t *testing.T) {
	w, _ := newQueue(t)
	const none = xmlProlog + "<SignedIdentifiers />"
	proof.Same(t, w.want(200, "", "GET", "/queue?comp=acl", "").body, none)
	policy := func(id, start, expiry, permission string) string {
		return "<SignedIdentifier><Id>" + id + "</Id><AccessPolicy><Start>" + start + "</Start><Expiry>" + expiry +
			"</Expiry><Permission>" + permission + "</Permission></AccessPolicy></SignedIdentifier>"
	}
	acl := func(policies ...string) string {
		return "<SignedIdentifiers>" + strings.Join(policies, "") + "</SignedIdentifiers>"
	}
	one := policy("one&amp;only", "2026-01-02T03:04:05.0000000Z", "2027-01-02T03:04:05.1234567Z", "raup")
	w.want(204, "", "PUT", "/queue?comp=acl", acl(one))
	proof.Same(t, w.want(200, "", "GET", "/queue?comp=acl", "").body, xmlProlog+acl(one))
	w.want(400, "InvalidXmlDocument", "PUT", "/queue?comp=acl", "<SignedIdentifiers>")
	w.want(400, "InvalidXmlDocument", "PUT", "/queue?comp=acl", acl(strings.Split(strings.Repeat("<SignedIdentifier><Id>x</Id></SignedIdentifier>,", 6), ",")...))
	w.want(400, "InvalidXmlNodeValue", "PUT", "/queue?comp=acl", acl(policy("a", "someday", "2027-01-02", "r")))
	w.want(400, "InvalidXmlNodeValue", "PUT", "/queue?comp=acl", acl(policy("a", "2026-01-02", "2027-01-02", "rd")))
	w.want(400, "InvalidXmlDocument", "PUT", "/queue?comp=acl", acl(policy(strings.Repeat("x", 65), "2026-01-02", "2027-01-02", "r")))
	w.want(404, "QueueNotFound", "PUT", "/nosuch?comp=acl", "")
	w.want(204, "", "PUT", "/queue?comp=acl", "")
	proof.Same(t, w.want(200, "", "GET", "/queue?comp=acl", "").body, none)
}

func TestAnAccountThatIsResetIsAsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newQueue(t)
		w.put("queue", "x", "")
		s.Reset("no-such-account")
		w.want(200, "", "GET", "/queue/messages?peekonly=true", "")
		for _, account := range s.Accounts() {
			s.Reset(account)
		}
		w.want(404, "QueueNotFound", "GET", "/queue/messages", "")
		w.create("queue") // at once: the name is not being deleted
		if left := w.peek("queue"); len(left) > 0 {
			t.Errorf("messages are left: %v", left)
		}
	})
}
