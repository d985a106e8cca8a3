package azsim

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// Pages cited here: learn.microsoft.com/rest/api/storageservices/update-message,
// .../delete-message2, .../clear-messages.

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

// update-message: "extend the visibility of a queue message and update the
// contents"; its response gives a new pop receipt.
func TestAnUpdateGivesANewReceiptAndEndsTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newQueue(t)
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
		proof.Same(t, texts(w.peek("queue")), "new", "after the lease")
		w.want(204, "", "DELETE", m.target("queue", ""), "")
	})
}

// AZURE.md A3, update: no body keeps the text (Q55), an empty text empties it (D2).
func TestAnUpdateWithoutABodyKeepsTheText(t *testing.T) {
	w, _ := newQueue(t)
	w.put("queue", "precious", "")
	m := w.get("queue", "")[0]
	m.Receipt = w.want(204, "", "PUT", m.target("queue", "&visibilitytimeout=0"), "").header.Get("x-ms-popreceipt")
	proof.Same(t, texts(w.peek("queue")), "precious", "text is now")
	w.want(204, "", "PUT", m.target("queue", "&visibilitytimeout=0"), "<QueueMessage><MessageText></MessageText></QueueMessage>")
	if s := w.peek("queue"); len(s) != 1 || s[0].Text != "" {
		t.Errorf("messages are now %+v", s)
	}
}

// update-message and delete-message2, URI parameters.
func TestUpdateAndDeleteParametersAreChecked(t *testing.T) {
	w, _ := newQueue(t)
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
		proof.Has(t, a.body, "<Reason>Invalid pop receipt format</Reason>")
	}
	w.want(404, "MessageNotFound", "DELETE", "/queue/messages/no-guid?"+receipt, "")
	w.want(404, "QueueNotFound", "DELETE", "/nosuch/messages/"+m.ID+"?"+receipt, "")
	w.want(400, "InvalidXmlDocument", "PUT", at+"?"+receipt+"&visibilitytimeout=1", "<QueueMessage>")
	w.want(413, "RequestBodyTooLarge", "PUT", at+"?"+receipt+"&visibilitytimeout=1", text(strings.Repeat("x", 65537)))
	w.want(204, "", "DELETE", at+"?"+receipt, "")
}
