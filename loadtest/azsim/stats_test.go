package azsim

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestStatsCountRequestsByAccountOperationAndAnswer(t *testing.T) {
	w, s := newRaw(t, Config{Accounts: []Account{{Name: "acct"}}})
	w.create("queue")
	w.put("queue", "x", "")
	w.put("queue", "y", "")
	w.do("GET", "/nosuch/messages", "")
	w.do("PATCH", "/queue", "")
	s.Inject(Rule{Fault: AnswerLost, First: 1})
	if _, err := w.try("POST", "/queue/messages", text("z")); err == nil {
		t.Fatal("the answer was not lost")
	}
	s.Inject(Rule{Fault: FailBefore, First: 1})
	if _, err := w.try("POST", "/queue/messages", text("z")); err == nil {
		t.Fatal("the request did not fail")
	}
	w.at = "https://nosuch.queue.core.windows.net"
	w.do("GET", "/queue/messages", "")
	got := s.Stats()
	want := []RequestCount{
		{"", "queue", "", 404, "ResourceNotFound", 1},
		{"acct", "queue", "", 405, "UnsupportedHttpVerb", 1},
		{"acct", "queue", "CreateQueue", 201, "", 1},
		{"acct", "queue", "GetMessages", 404, "QueueNotFound", 1},
		{"acct", "queue", "PutMessage", 0, "", 1},
		{"acct", "queue", "PutMessage", 201, "", 3},
	}
	proof.Same(t, cmp.Diff(want, got.Requests), "")
	proof.Same(t, cmp.Diff(map[FaultKind]int64{AnswerLost: 1, FailBefore: 1}, got.Faults), "")
	proof.Same(t, got.Count("acct", "PutMessage"), 4, "puts")
	proof.Same(t, got.Count("", ""), 8, "requests")
}

// learn.microsoft.com/rest/api/storageservices/set-queue-service-properties:
// what the document leaves out keeps its value; wrong nodes are named.
func TestServicePropertiesAreKeptPartByPart(t *testing.T) {
	w, _ := newRaw(t, Config{})
	const at = "/?restype=service&comp=properties"
	get := func() (d propertiesDoc) {
		t.Helper()
		a := w.want(200, "", "GET", at, "")
		must(t, xml.Unmarshal([]byte(strings.TrimPrefix(a.body, bom)), &d))
		return d
	}
	const logging = "<Logging><Version>1.0</Version><Delete>true</Delete><Read>false</Read><Write>true</Write>" +
		"<RetentionPolicy><Enabled>true</Enabled><Days>9</Days></RetentionPolicy></Logging>"
	doc := func(inner string) string {
		return "<StorageServiceProperties>" + inner + "</StorageServiceProperties>"
	}
	before := get()
	w.want(202, "", "PUT", at, "\uFEFF"+doc(logging))
	after := get()
	if l := after.Logging; !l.Delete || l.Read || !l.Write || *l.RetentionPolicy.Days != 9 {
		t.Errorf("%+v", l)
	}
	after.Logging = before.Logging
	proof.Same(t, cmp.Diff(before, after), "", "the rest changed")
	rule := "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods><MaxAgeInSeconds>5</MaxAgeInSeconds><ExposedHeaders /><AllowedHeaders /></CorsRule>"
	w.want(202, "", "PUT", at, doc("<Cors>"+strings.Repeat(rule, 5)+"</Cors>"))
	proof.Same(t, len(get().Cors.Rules), 5, "rules")
	w.want(202, "", "PUT", at, doc("<Cors />"))
	proof.Same(t, len(get().Cors.Rules), 0, "rules after an empty Cors")
	for node, inner := range map[string]string{
		"AllowedOrigins":  "<Cors>" + strings.Replace(rule, "*", "", 1) + "</Cors>",
		"AllowedMethods":  "<Cors>" + strings.Replace(rule, "GET", "", 1) + "</Cors>",
		"MaxAgeInSeconds": "<Cors>" + strings.Replace(rule, ">5<", ">-5<", 1) + "</Cors>",
		"IncludeAPIs":     "<HourMetrics><Version>1.0</Version><Enabled>true</Enabled><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></HourMetrics>",
	} {
		a := w.want(400, "InvalidXmlNodeValue", "PUT", at, doc(inner))
		proof.Has(t, a.body, "<XmlNodeName>"+node+"</XmlNodeName>", node)
	}
	for _, body := range []string{
		"<StorageServiceProperties>", doc("<Cors>" + strings.Repeat(rule, 6) + "</Cors>"),
		doc(strings.Replace(logging, "9", "366", 1)),
	} {
		w.want(400, "InvalidXmlDocument", "PUT", at, body)
	}
	w.want(405, "UnsupportedHttpVerb", "DELETE", at, "")
	w.want(400, "InvalidQueryParameterValue", "GET", "/?restype=service&comp=nosuch", "")
}
