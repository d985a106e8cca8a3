package azsim

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// Pages cited here: learn.microsoft.com/rest/api/storageservices/put-message,
// .../scalability-targets of queues; "Qnn" are the scenarios of AZURE.md.

// put-message, URI parameters: visibilitytimeout, messagettl.
func TestPutParametersOutsideTheirRangeAreRefused(t *testing.T) {
	w, _ := newQueue(t)
	const put = "/queue/messages"
	w.want(400, "OutOfRangeQueryParameterValue", "POST", put+"?visibilitytimeout=604801&messagettl=-1", text("x")) // Q16
	w.want(400, "OutOfRangeQueryParameterValue", "POST", put+"?visibilitytimeout=-1", text("x"))                   // Q18
	w.want(400, "InvalidQueryParameterValue", "POST", put+"?visibilitytimeout=soon", text("x"))
	w.want(400, "InvalidQueryParameterValue", "POST", put+"?messagettl=0", text("x"))  // Q11
	w.want(400, "InvalidQueryParameterValue", "POST", put+"?messagettl=-2", text("x")) // Q12
	w.want(400, "InvalidQueryParameterValue", "POST", put+"?messagettl=99999999999", text("x"))
	w.want(201, "", "POST", put+"?visibilitytimeout=604800&messagettl=-1", text("x"))
	w.want(404, "QueueNotFound", "POST", "/nosuch/messages", text("x")) // Q05
}

// put-message: "The visibility timeout must be smaller than the time-to-live value."
func TestVisibilityTimeoutMustBeSmallerThanTimeToLive(t *testing.T) {
	w, _ := newQueue(t)
	w.want(400, "InvalidQueryParameterValue", "POST", "/queue/messages?visibilitytimeout=10&messagettl=10", text("x"))
	w.want(400, "InvalidQueryParameterValue", "POST", "/queue/messages?visibilitytimeout=604800", text("x")) // the default is 7 days (Q15)
	w.want(201, "", "POST", "/queue/messages?visibilitytimeout=10&messagettl=11", text("x"))
}

// put-message: "If this parameter is omitted, the default time-to-live is seven days."
func TestTheDefaultTimeToLiveIsSevenDaysAndThenTheMessageIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newQueue(t)
		m := w.put("queue", "x", "")
		in, _ := http.ParseTime(m.Inserted)
		out, _ := http.ParseTime(m.Expires)
		proof.Same(t, out.Sub(in), 7*24*time.Hour, "lives")
		time.Sleep(7*24*time.Hour - time.Nanosecond)
		if n := len(w.peek("queue")); n != 1 {
			t.Fatalf("%d messages just before the end of its time", n)
		}
		time.Sleep(time.Nanosecond)
		proof.Same(t, len(w.peek("queue")), 0, "messages after the end of its time")
		proof.Same(t, w.do("GET", "/queue?comp=metadata", "").header.Get("x-ms-approximate-messages-count"), "0", "counted")
		w.want(404, "MessageNotFound", "DELETE", m.target("queue", ""), "") // Q63
	})
}

// put-message: "the maximum time-to-live can be any positive number, as well as
// -1 indicating that the message doesn't expire" (since version 2017-07-29).
func TestTimeToLiveMinusOneNeverExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newQueue(t)
		proof.Same(t, w.put("queue", "x", "?messagettl=-1").Expires, "Fri, 31 Dec 9999 23:59:59 GMT", "expires")
		w.put("queue", "y", "?messagettl=2147483647")
		time.Sleep(20 * 365 * 24 * time.Hour)
		proof.Same(t, texts(w.peek("queue")), "x y", "left after twenty years")
		w.want(400, "InvalidQueryParameterValue", "POST", "/queue/messages?messagettl=-1", text("x"), "x-ms-version", "2017-04-17")
		w.want(400, "OutOfRangeQueryParameterValue", "POST", "/queue/messages?messagettl=604801", text("x"), "x-ms-version", "2017-04-17")
	})
}

// scalability-targets: "Maximum size of a message in a queue: 64 KiB"; the size
// is that of the decoded text (AZURE.md A3, Q20-Q23).
func TestATextOf65536BytesIsTheLargest(t *testing.T) {
	w, _ := newQueue(t)
	for _, one := range []string{"x", "&lt;", "&quot;"} {
		w.want(201, "", "POST", "/queue/messages", text(strings.Repeat(one, 65536)))
		a := w.want(413, "RequestBodyTooLarge", "POST", "/queue/messages", text(strings.Repeat(one, 65537)))
		proof.Has(t, a.body, "<MaxLimit>65536</MaxLimit>")
	}
	w.want(413, "RequestBodyTooLarge", "POST", "/queue/messages", text(strings.Repeat("ä", 32769))) // bytes, not characters
	for _, m := range w.get("queue", "?numofmessages=32") {
		proof.Same(t, len(m.Text), 65536, "came back with … bytes")
	}
}

// put-message, request body: any XML of the form is taken.
func TestEveryFormOfTheBodyIsRead(t *testing.T) {
	w, _ := newQueue(t)
	const inner = "<QueueMessage><MessageText>a b</MessageText></QueueMessage>"
	for _, body := range []string{
		inner,
		"\uFEFF" + inner,
		`<?xml version="1.0" encoding="utf-8"?>` + inner,
		"\uFEFF<?xml version=\"1.0\" encoding=\"UTF-8\"?>\r\n" + inner + "\n",
		`<?xml version='1.0'?><QueueMessage> <MessageText>a&#32;b</MessageText></QueueMessage>`,
		"<QueueMessage>\n  <!-- no --><MessageText><![CDATA[a b]]></MessageText>\n</QueueMessage>",
		"<QueueMessage><MessageText>a<b> </b>b</MessageText></QueueMessage>", // markup that was not escaped goes
	} {
		w.want(201, "", "POST", "/queue/messages", body)
		proof.Same(t, texts(w.get("queue", "")), "a b", body, "came back as")
	}
	w.want(201, "", "POST", "/queue/messages", "<QueueMessage><MessageText/></QueueMessage>")
	if ms := w.get("queue", ""); len(ms) != 1 || ms[0].Text != "" {
		t.Errorf("an empty text came back as %v", ms)
	}
}

// common-rest-api-error-codes: InvalidXmlDocument, MissingRequiredXmlNode.
func TestABodyThatIsNoMessageIsRefused(t *testing.T) {
	w, _ := newQueue(t)
	for _, body := range []string{
		"<QueueMessage><MessageText>x</MessageText>", // Q31
		"<QueueMessage><MessageText>x</QueueMessage></MessageText>",
		"<Other><MessageText>x</MessageText></Other>",
		"plain text <",
		text("\x01"),
		text("\xff\xfe"),
		text("&nosuch;"),
		text("]]>"), text("&#xD83D;"), text("half &#57343; a pair"),
		"<QueueMessage><MessageText>x</MessageText><MessageText>y</MessageText></QueueMessage>",
		`<?xml version="1.0" encoding="utf-16"?>` + text("x"),
		"<QueueMessage>" + strings.Repeat("<a>", 100) + strings.Repeat("</a>", 100) + "</QueueMessage>",
	} {
		w.want(400, "InvalidXmlDocument", "POST", "/queue/messages", body)
	}
	w.want(400, "MissingRequiredXmlNode", "POST", "/queue/messages", "<QueueMessage></QueueMessage>")
	w.want(400, "MissingRequiredXmlNode", "POST", "/queue/messages", "")
	proof.Same(t, len(w.peek("queue")), 0, "messages were put nevertheless")
}

// Text comes back as it was meant, whatever way the body was read.
func FuzzTextComesBackAsSent(f *testing.F) {
	for _, s := range []string{"", "abc", "a<b>&\"'", "ä\n\tö", "\r\n", "]]>", strings.Repeat("A1+/", 100), "x\x00", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		body := append([]byte("<QueueMessage><MessageText>"), appendXMLText(nil, b)...)
		body = append(body, "</MessageText></QueueMessage>"...)
		got, plain, err := parseMessage(body)
		if err != nil {
			return // not text in XML's sense
		}
		if string(got) != string(b) {
			t.Fatalf("%q became %q", b, got)
		}
		if plain && string(appendXMLText(nil, b)) != string(b) {
			t.Fatalf("%q was taken as plain", b)
		}
		slow, err := slowMessage(body)
		if err != nil || string(slow) != string(b) {
			t.Fatalf("the two ways differ on %q: %q, %v", b, slow, err)
		}
	})
}
