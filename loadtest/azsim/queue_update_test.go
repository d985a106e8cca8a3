package azsim

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Pages cited here: learn.microsoft.com/rest/api/storageservices/update-message,
// .../delete-message2, .../clear-messages.

// delete-message2: "If a message with a matching pop receipt isn't found, the
// service returns error code 404 (Not Found)".
func TestADeleteNeedsTheReceiptOfTheLastDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newRaw(t, Config{})
		w.create("queue")
		w.put("queue", "x", "")
		first := w.get("queue", "?visibilitytimeout=1")[0]
		time.Sleep(time.Second)
		second := w.get("queue", "")[0]
		w.want(404, "MessageNotFound", "DELETE", first.target("queue", ""), "")
		w.want(404, "MessageNotFound", "PUT", first.target("queue", "&visibilitytimeout=9"), "")
		w.want(204, "", "DELETE", second.target("queue", ""), "")
		w.want(404, "MessageNotFound", "DELETE", second.target("queue", ""), "") // Q08
	})
}

// The field reports of AZURE.md A3 against Azurite's answer (Q47, Q48, Q50, Q51).
func TestAStaleReceiptIsAMismatchIfSoConfigured(t *testing.T) {
	w, _ := newRaw(t, Config{PopReceiptMismatch: true})
	w.create("queue")
	put := w.put("queue", "x", "")
	m := w.get("queue", "")[0]
	w.want(400, "PopReceiptMismatch", "DELETE", put.target("queue", ""), "")
	w.want(204, "", "DELETE", m.target("queue", ""), "")
	w.want(404, "MessageNotFound", "DELETE", m.target("queue", ""), "")
}

// AZURE.md A3, Put: its receipt is good until the first get.
func TestTheReceiptOfAPutDeletesUntilTheMessageIsTaken(t *testing.T) {
	w, _ := newRaw(t, Config{})
	w.create("queue")
	w.want(204, "", "DELETE", w.put("queue", "x", "").target("queue", ""), "") // Q07
	m := w.put("queue", "y", "")
	w.get("queue", "")
	w.want(404, "MessageNotFound", "DELETE", m.target("queue", ""), "")
}

// get-messages, remarks: a client may still delete after its lease, as long as
// no other client took the message (Q46, Q52).
func TestAReceiptOutlivesItsLeaseWhileNobodyElseTakesTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newRaw(t, Config{})
		w.create("queue")
		w.put("queue", "x", "")
		w.put("queue", "y", "")
		ms := w.get("queue", "?numofmessages=2&visibilitytimeout=1")
		time.Sleep(time.Minute)
		w.want(204, "", "DELETE", ms[0].target("queue", ""), "")
		w.want(204, "", "PUT", ms[1].target("queue", "&visibilitytimeout=30"), "")
		if n := len(w.peek("queue")); n != 0 {
			t.Errorf("%d visible after the renewal", n)
		}
	})
}

// update-message: "extend the visibility of a queue message and update the
// contents"; its response gives a new pop receipt.
func TestAnUpdateGivesANewReceiptAndEndsTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newRaw(t, Config{})
		w.create("queue")
		w.put("queue", "x", "")
		m := w.get("queue", "")[0]
		u := w.want(204, "", "PUT", m.target("queue", "&visibilitytimeout=60"), text("new"))
		w.want(404, "MessageNotFound", "PUT", m.target("queue", "&visibilitytimeout=60"), "")
		w.want(404, "MessageNotFound", "DELETE", m.target("queue", ""), "")
		m.Receipt = u.header.Get("x-ms-popreceipt")
		if b, err := base64.StdEncoding.DecodeString(m.Receipt); err != nil || len(b) != 24 || b[0] != 3 {
			t.Errorf("receipt %x, %v", b, err)
		}
		time.Sleep(60 * time.Second)
		if s := texts(w.peek("queue")); s != "new" {
			t.Errorf("after the lease: %q", s)
		}
		w.want(204, "", "DELETE", m.target("queue", ""), "")
	})
}

// AZURE.md A3, update: no body keeps the text (Q55), an empty text empties it (D2).
func TestAnUpdateWithoutABodyKeepsTheText(t *testing.T) {
	w, _ := newRaw(t, Config{})
	w.create("queue")
	w.put("queue", "precious", "")
	m := w.get("queue", "")[0]
	m.Receipt = w.want(204, "", "PUT", m.target("queue", "&visibilitytimeout=0"), "").header.Get("x-ms-popreceipt")
	if s := texts(w.peek("queue")); s != "precious" {
		t.Errorf("text is now %q", s)
	}
	w.want(204, "", "PUT", m.target("queue", "&visibilitytimeout=0"), "<QueueMessage><MessageText></MessageText></QueueMessage>")
	if s := w.peek("queue"); len(s) != 1 || s[0].Text != "" {
		t.Errorf("messages are now %+v", s)
	}
}

// update-message: "visibilitytimeout 0 ... makes the message visible at once".
func TestAnUpdateToZeroReleasesTheMessageAtOnce(t *testing.T) {
	w, _ := newRaw(t, Config{})
	w.create("queue")
	w.put("queue", "x", "")
	m := w.get("queue", "?visibilitytimeout=600")[0]
	w.want(204, "", "PUT", m.target("queue", "&visibilitytimeout=0"), "")
	if ms := w.get("queue", ""); len(ms) != 1 || ms[0].Dequeued != 2 {
		t.Errorf("%+v", ms)
	}
}

// update-message and delete-message2, URI parameters.
func TestUpdateAndDeleteParametersAreChecked(t *testing.T) {
	w, _ := newRaw(t, Config{})
	w.create("queue")
	m := w.put("queue", "x", "")
	at := "/queue/messages/" + m.ID
	receipt := "popreceipt=" + url.QueryEscape(m.Receipt)
	w.want(400, "MissingRequiredQueryParameter", "PUT", at+"?"+receipt, text("y"))            // Q57
	w.want(400, "MissingRequiredQueryParameter", "PUT", at+"?visibilitytimeout=1", text("y")) // Q58
	w.want(400, "MissingRequiredQueryParameter", "DELETE", at, "")
	w.want(400, "OutOfRangeQueryParameterValue", "PUT", at+"?"+receipt+"&visibilitytimeout=604801", text("y"))
	w.want(400, "OutOfRangeQueryParameterValue", "PUT", at+"?"+receipt+"&visibilitytimeout=-1", text("y"))
	for _, garbage := range []string{"garbage", "AAAA", "%20", url.QueryEscape(m.Receipt[:8])} { // Q53
		a := w.want(400, "InvalidQueryParameterValue", "DELETE", at+"?popreceipt="+garbage, "")
		if !strings.Contains(a.body, "<Reason>Invalid pop receipt format</Reason>") {
			t.Error(a.body)
		}
	}
	w.want(404, "MessageNotFound", "DELETE", "/queue/messages/no-guid?"+receipt, "")
	w.want(404, "QueueNotFound", "DELETE", "/nosuch/messages/"+m.ID+"?"+receipt, "")
	w.want(400, "InvalidXmlDocument", "PUT", at+"?"+receipt+"&visibilitytimeout=1", "<QueueMessage>")
	w.want(413, "RequestBodyTooLarge", "PUT", at+"?"+receipt+"&visibilitytimeout=1", text(strings.Repeat("x", 65537)))
	w.want(204, "", "DELETE", at+"?"+receipt, "")
}

// clear-messages: "deletes all messages from the specified queue".
func TestClearDeletesEveryMessageLeasedOnesToo(t *testing.T) {
	w, _ := newRaw(t, Config{})
	w.create("queue")
	w.put("queue", "a", "")
	w.put("queue", "b", "")
	m := w.get("queue", "")[0]
	w.want(204, "", "DELETE", "/queue/messages", "")
	if c := w.do("GET", "/queue?comp=metadata", "").header.Get("x-ms-approximate-messages-count"); c != "0" {
		t.Errorf("%s left", c)
	}
	w.want(404, "MessageNotFound", "DELETE", m.target("queue", ""), "")
	w.put("queue", "c", "")
	if s := texts(w.get("queue", "?numofmessages=32")); s != "c" {
		t.Errorf("got %q", s)
	}
	w.want(404, "QueueNotFound", "DELETE", "/nosuch/messages", "")
}
