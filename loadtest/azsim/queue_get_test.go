package azsim

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// Pages cited here: learn.microsoft.com/rest/api/storageservices/get-messages,
// .../peek-messages.

// get-messages, URI parameters: numofmessages, visibilitytimeout.
func TestGetParametersOutsideTheirRangeAreRefused(t *testing.T) {
	w, _ := newQueue(t)
	for _, q := range []string{
		"numofmessages=0", "numofmessages=33", "numofmessages=-1", // Q32, Q33
		"visibilitytimeout=0", "visibilitytimeout=604801", // Q35, Q36
		"peekonly=true&numofmessages=33",
	} {
		w.want(400, "OutOfRangeQueryParameterValue", "GET", "/queue/messages?"+q, "")
	}
	w.want(400, "InvalidQueryParameterValue", "GET", "/queue/messages?numofmessages=all", "")
	w.want(404, "QueueNotFound", "GET", "/nosuch/messages", "")
	w.want(404, "QueueNotFound", "GET", "/nosuch/messages?peekonly=true", "")
}

// get-messages: "By default, a single message is retrieved"; "The default value is 30 seconds."
func TestAGetTakesOneMessageForThirtySecondsByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newQueue(t)
		w.put("queue", "a", "")
		w.put("queue", "b", "")
		if s := texts(w.get("queue", "")); s != "a" {
			t.Fatalf("got %q", s)
		}
		time.Sleep(30*time.Second - time.Nanosecond)
		proof.Same(t, texts(w.peek("queue")), "b", "visible before the end of the lease")
		time.Sleep(time.Nanosecond)
		// A released message goes behind those put before its release (Q66).
		proof.Same(t, texts(w.peek("queue")), "b a", "visible after the lease")
	})
}

// AZURE.md A3, pop receipt form.
func TestAllMessagesOfOneGetCarryOneReceiptAndNoTwoGetsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newQueue(t)
		for i := range 64 {
			w.put("queue", fmt.Sprint(i), "")
		}
		one, two := w.get("queue", "?numofmessages=32"), w.get("queue", "?numofmessages=32") // at the same instant
		for i := range one {
			if one[i].Receipt != one[0].Receipt || two[i].Receipt != two[0].Receipt {
				t.Fatal("receipts differ within a get")
			}
		}
		if one[0].Receipt == two[0].Receipt {
			t.Error("two gets gave one receipt")
		}
		b, err := base64.StdEncoding.DecodeString(one[0].Receipt)
		if err != nil || len(b) != 20 || binary.LittleEndian.Uint32(b) != 2 {
			t.Fatalf("receipt %x, %v", b, err)
		}
		at := time.Unix(0, (int64(binary.LittleEndian.Uint64(b[12:]))-filetimeOffset)*100)
		if want := time.Now().Add(30 * time.Second); !at.Equal(want) {
			t.Errorf("the receipt says %v, want %v", at.UTC(), want.UTC())
		}
		w.want(404, "MessageNotFound", "DELETE", got{ID: two[0].ID, Receipt: one[0].Receipt}.target("queue", ""), "")
	})
}

// AZURE.md A3, clamp: recorded in enqueue_peek_and_dequeue_negative.
func TestALeaseEndsAtTheLatestWhenTheMessageExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newQueue(t)
		w.put("queue", "x", "?messagettl=40")
		time.Sleep(500 * time.Millisecond)
		m := w.get("queue", "?visibilitytimeout=40")[0]
		proof.Same(t, m.Next, m.Expires, "leased to …, expires")
		u := w.want(204, "", "PUT", m.target("queue", "&visibilitytimeout=600"), "")
		proof.Same(t, u.header.Get("x-ms-time-next-visible"), m.Expires, "renewed to …, expires")
		time.Sleep(time.Minute)
		proof.Same(t, len(w.peek("queue")), 0, "it outlived its expiry")
	})
}

// AZURE.md A3, get: a lease is no guarantee, and times are the server's.
func TestTimesAreThoseOfTheServersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newQueue(t)
		s.SetClockOffset(time.Hour)
		m := w.put("queue", "x", "")
		if in, _ := http.ParseTime(m.Inserted); !in.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("inserted at %v", in)
		}
		if d, _ := http.ParseTime(w.do("GET", "/queue?comp=metadata", "").header.Get("Date")); !d.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("Date is %v", d)
		}
		s.SetClockOffset(0) // back: what was put in the future is not visible yet, later puts are
		w.put("queue", "y", "")
		proof.Same(t, texts(w.get("queue", "?numofmessages=32")), "y")
		time.Sleep(time.Hour)
		proof.Same(t, texts(w.get("queue", "?numofmessages=32")), "y x", "an hour later")
	})
}
