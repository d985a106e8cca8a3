package azure

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

// A message as real Azure sends it (azsim/AZURE.md A1, A3), and as Azurite does.
const (
	azureGet = "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage>" +
		"<MessageId>f7bff1d3-3b0b-4b38-9e1c-5e2e8a1f0f00</MessageId><InsertionTime>Wed, 11 Sep 2019 02:21:08 GMT</InsertionTime>" +
		"<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>AgAAAAMAAAAAAAAAMhKHpEdo1QE=</PopReceipt>" +
		"<TimeNextVisible>Wed, 11 Sep 2019 02:21:38 GMT</TimeNextVisible><DequeueCount>3</DequeueCount>" +
		"<MessageText>a &lt;b&gt; &amp;amp; &quot;c&quot; &apos;d&apos; &#65;&#x42;&#x1F600;&#13;&#xA;</MessageText></QueueMessage></QueueMessagesList>"
	azuriteGet = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?><QueueMessagesList><QueueMessage><MessageId>a-1</MessageId>` +
		`<InsertionTime>Wed, 11 Sep 2019 02:21:08 GMT</InsertionTime><ExpirationTime>Wed, 11 Sep 2019 02:21:08 GMT</ExpirationTime>` +
		`<PopReceipt>r</PopReceipt><TimeNextVisible>Wed, 11 Sep 2019 02:21:38 GMT</TimeNextVisible><DequeueCount>1</DequeueCount><MessageText/></QueueMessage></QueueMessagesList>`
)

func TestMessagesAreReadAsAzureSendsThem(t *testing.T) {
	t.Parallel()
	ms, err := readMessages([]byte(azureGet), 32, hasID|hasReceipt|hasText)
	if err != nil || len(ms) != 1 {
		t.Fatalf("%v, %v", ms, err)
	}
	m := ms[0]
	if string(m.Text) != "a <b> &amp; \"c\" 'd' AB😀\r\n" || m.ID != "f7bff1d3-3b0b-4b38-9e1c-5e2e8a1f0f00" || m.PopReceipt != "AgAAAAMAAAAAAAAAMhKHpEdo1QE=" || m.Dequeued != 3 ||
		!m.Inserted.Equal(time.Date(2019, 9, 11, 2, 21, 8, 0, time.UTC)) || !m.NextVisible.Equal(time.Date(2019, 9, 11, 2, 21, 38, 0, time.UTC)) {
		t.Errorf("%+v %q", m, m.Text)
	}
	proof.Is(t, proof.ErrOf(scanMessages([]byte(azureGet[3:]), 1)), nil,
		"the scanner left Azure's form to encoding/xml")
	if ms, err = readMessages([]byte(azuriteGet), 32, hasID|hasReceipt|hasText); err != nil || len(ms) != 1 || len(ms[0].Text) != 0 {
		t.Errorf("%v, %v", ms, err)
	}
	proof.Is(t, proof.ErrOf(scanMessages([]byte(azuriteGet), 1)), nil,
		"the scanner left Azurite's form to encoding/xml")
	for _, empty := range []string{emptyList, "<QueueMessagesList/>", "<QueueMessagesList></QueueMessagesList>", "<?xml version=\"1.0\"?>\n<QueueMessagesList>\n</QueueMessagesList>\n"} {
		if ms, err := readMessages([]byte(empty), 32, hasID); err != nil || len(ms) != 0 {
			t.Errorf("%q: %v, %v", empty, ms, err)
		}
	}
}

// Forms that only a reader of all of XML knows: slower, not refused.
func TestOtherFormsOfXMLAreReadToo(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`<QueueMessagesList xmlns:x="y"><QueueMessage a="b"><MessageId>i</MessageId><PopReceipt>r</PopReceipt><MessageText><![CDATA[a<b]]></MessageText></QueueMessage></QueueMessagesList>`,
		`<?xml version='1.0'?><!-- c --><QueueMessagesList><QueueMessage><MessageId>i</MessageId><PopReceipt>r</PopReceipt><MessageText>a&lt;<!-- c -->b</MessageText><New><Nested/></New></QueueMessage></QueueMessagesList>`,
	} {
		ms, err := readMessages([]byte(doc), 32, hasID|hasReceipt|hasText)
		if err != nil || len(ms) != 1 || string(ms[0].Text) != "a<b" {
			t.Errorf("%s: %+v, %v", doc, ms, err)
		}
	}
}

// window 4: "decode error" is never read as "empty".
func TestAnswersThatAreNoListAreErrors(t *testing.T) {
	t.Parallel()
	one := "<QueueMessage><MessageId>i</MessageId><PopReceipt>r</PopReceipt><MessageText>t</MessageText></QueueMessage>"
	for _, doc := range []string{
		"", " ", "\ufeff", "<html></html>", "{}", "<QueueMessagesList>", "<QueueMessagesList/><QueueMessagesList/>", "<QueueMessagesList/>x", "<QueueMessagesList2/>",
		azureGet[:len(azureGet)-1], azureGet[:len(azureGet)/2],
		"<QueueMessagesList><QueueMessage></QueueMessage></QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, "<PopReceipt>r</PopReceipt>", "", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, "<PopReceipt>r</PopReceipt>", "<PopReceipt/>", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, "<MessageId>i</MessageId>", "", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, "<MessageText>t</MessageText>", "", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, ">t<", ">\x01<", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, ">t<", ">&#1;<", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, ">t<", ">&nope;<", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, ">t<", ">a & b<", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Replace(one, ">t<", ">\xff<", 1) + "</QueueMessagesList>",
		"<QueueMessagesList>" + strings.Repeat(one, 33) + "</QueueMessagesList>",
	} {
		if ms, err := readMessages([]byte(doc), 32, hasID|hasReceipt|hasText); err == nil {
			t.Errorf("%.100q was read as %d messages", doc, len(ms))
		}
		_, err := openFake(t, &fake{status: 200, body: doc}).Queue("queue").Get(t.Context(), 32, time.Minute)
		if !storage.Is(err, storage.MaybeDone) {
			t.Errorf("%.100q: a get says %v", doc, err)
		}
	}
}

// A field that is only for display must not keep messages from being handled.
func TestDatesThatCannotBeReadAreZero(t *testing.T) {
	t.Parallel()
	doc := strings.NewReplacer("Wed, 11 Sep 2019 02:21:08 GMT", "yesterday", "<DequeueCount>3</DequeueCount>", "<DequeueCount>many</DequeueCount>").Replace(azureGet)
	ms, err := readMessages([]byte(doc), 32, hasID|hasReceipt|hasText)
	if err != nil || len(ms) != 1 || !ms[0].Inserted.IsZero() || ms[0].Dequeued != 0 || ms[0].NextVisible.IsZero() {
		t.Errorf("%+v, %v", ms, err)
	}
}

// encoding/xml reads every legal text as a put sends it.
func TestBodyOfAPutIsTheText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.Rune().Filter(legal), 0, 300, -1).Draw(t, "text")
		body, err := document([]byte(text))
		must(t, err)
		var doc struct {
			XMLName xml.Name `xml:"QueueMessage"`
			Text    string   `xml:"MessageText"`
		}
		if err := xml.Unmarshal(body, &doc); err != nil || doc.Text != text {
			t.Fatalf("%q became %q, %v", text, doc.Text, err)
		}
	})
}

// firstIllegal, which looks at eight bytes at a time, against a plain loop.
func FuzzFirstIllegal(f *testing.F) {
	f.Add([]byte("plain ascii and more of it"))
	f.Add([]byte("1234567\x80é😀\x1f"))
	f.Add([]byte("\xed\xa0\x80\xef\xbf\xbe"))
	f.Fuzz(func(t *testing.T, b []byte) {
		want := -1
		for i := 0; i < len(b); {
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 || !legal(r) {
				want = i
				break
			}
			i += n
		}
		for shift := range 8 { // every alignment
			if got := firstIllegal(append(bytes.Repeat([]byte("a"), shift), b...)); want < 0 && got >= 0 || want >= 0 && got != want+shift {
				t.Fatalf("%q after %d bytes: %d, want %d", b, shift, got, want)
			}
		}
	})
}

// Whatever the scanner accepts, encoding/xml must accept and read alike (but
// for bare carriage returns, which it turns into newlines and the scanner keeps).
func FuzzScanMessages(f *testing.F) {
	for _, doc := range []string{azureGet[3:], azuriteGet, emptyList[3:], "<QueueMessagesList><QueueMessage><MessageId>&#x41;&lt;</MessageId><X/></QueueMessage></QueueMessagesList>"} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		scanned, err := scanMessages(doc, 1)
		if err != nil {
			return
		}
		if bytes.IndexByte(doc, '\r') >= 0 {
			return
		}
		decoded, err := decodeMessages(doc)
		if err != nil {
			t.Fatalf("%q: scanned, but encoding/xml says %v", doc, err)
		}
		if len(scanned) != len(decoded) {
			t.Fatalf("%q: %d messages scanned, %d decoded", doc, len(scanned), len(decoded))
		}
		for i := range scanned {
			a, b := scanned[i], decoded[i]
			if a.has != b.has || fmt.Sprintf("%+v", a.message) != fmt.Sprintf("%+v", b.message) {
				t.Fatalf("%q: scanned %+v, decoded %+v", doc, a, b)
			}
		}
	})
}

// Every list of messages, with each character written in any of the ways that
// XML has for it, is read by the scanner, and as it was meant.
func TestScannerReadsEveryWayToWriteAText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var doc strings.Builder
		var want []string
		doc.WriteString("<QueueMessagesList>")
		for range rapid.IntRange(0, 5).Draw(t, "messages") {
			doc.WriteString(rapid.SampledFrom([]string{"", "\n", "  "}).Draw(t, "space") + "<QueueMessage><MessageId>i</MessageId><MessageText>")
			text := rapid.SliceOfN(rapid.Rune().Filter(legal), 0, 40).Draw(t, "text")
			want = append(want, string(text))
			for _, r := range text {
				name := map[rune]string{'<': "&lt;", '>': "&gt;", '&': "&amp;", '"': "&quot;", '\'': "&apos;"}[r]
				switch how := rapid.IntRange(0, 3).Draw(t, "how"); {
				case how == 0:
					fmt.Fprintf(&doc, "&#%d;", r)
				case how == 1:
					fmt.Fprintf(&doc, "&#x%X;", r)
				case name != "":
					doc.WriteString(name)
				case r == '\r':
					doc.WriteString("&#13;")
				default:
					doc.WriteRune(r)
				}
			}
			doc.WriteString("</MessageText></QueueMessage>")
		}
		doc.WriteString("</QueueMessagesList>")
		ms, err := scanMessages([]byte(doc.String()), 3)
		if err != nil {
			t.Fatalf("%q: %v", doc.String(), err)
		}
		var got []string
		for _, m := range ms {
			got = append(got, string(m.message.Text))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q: %q, want %q", doc.String(), got, want)
		}
	})
}

func TestRenewSendsNoBodyAndReplaceSendsTheText(t *testing.T) {
	t.Parallel()
	f := &fake{status: 204, header: http.Header{"X-Ms-Popreceipt": {"new"}, "X-Ms-Time-Next-Visible": {"Wed, 11 Sep 2019 02:21:38 GMT"}}}
	q := openFake(t, f).Queue("queue")
	r, err := q.Renew(t.Context(), testReceipt, 90*time.Second+1)
	if err != nil || r.PopReceipt != "new" || r.ID != testReceipt.ID || r.NextVisible.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
	if f.sent != "" || f.last.ContentLength != 0 || f.last.Header.Get("Content-Length") != "" || f.last.Header.Get("Content-Type") != "" || f.last.Method != "PUT" {
		t.Errorf("a renewal sent %q with %v", f.sent, f.last.Header)
	}
	if v := f.last.URL.Query(); v.Get("visibilitytimeout") != "91" || v.Get("popreceipt") != testReceipt.PopReceipt {
		t.Errorf("a renewal asked for %v", v)
	}
	must(t, proof.ErrOf(q.Replace(t.Context(), testReceipt, []byte("<>"), 0)))
	if f.sent != "<QueueMessage><MessageText>&lt;&gt;</MessageText></QueueMessage>" || f.last.URL.Query().Get("visibilitytimeout") != "0" || f.last.ContentLength != int64(len(f.sent)) {
		t.Errorf("a replacement sent %q to %v", f.sent, f.last.URL)
	}
	f.header = nil
	if _, err := q.Renew(t.Context(), testReceipt, 0); !storage.Is(err, storage.MaybeDone) {
		t.Errorf("an answer without a receipt: %v", err)
	}
}

func TestPutNeverExpiresAndIsQuietAboutNoDelay(t *testing.T) {
	t.Parallel()
	f := &fake{status: 201, body: azureGet}
	q := openFake(t, f).Queue("queue")
	must(t, proof.ErrOf(q.Put(t.Context(), []byte("t"), 0)))
	if v := f.last.URL.Query(); v.Get("messagettl") != "-1" || v.Has("visibilitytimeout") {
		t.Errorf("a put asked for %v", v)
	}
	must(t, proof.ErrOf(q.Put(t.Context(), []byte("t"), time.Millisecond)))
	if v := f.last.URL.Query(); v.Get("messagettl") != "-1" || v.Get("visibilitytimeout") != "1" {
		t.Errorf("a delayed put asked for %v", v)
	}
	if ua := f.last.Header.Get("User-Agent"); !strings.HasPrefix(ua, "queuepump ") {
		t.Errorf("the requests are from %q", ua)
	}
}

func TestCountThatIsNoneIsMaybeDone(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"", "-1", "many", "9223372036854775808"} {
		_, err := openFake(t, &fake{status: 200, header: http.Header{"X-Ms-Approximate-Messages-Count": {n}}}).Queue("queue").Count(t.Context())
		if !storage.Is(err, storage.MaybeDone) {
			t.Errorf("%q: %v", n, err)
		}
	}
}

func TestQueuesAreListedPageAfterPage(t *testing.T) {
	t.Parallel()
	var asked []string
	a := openFake(t, transportFunc(func(req *http.Request) (*http.Response, error) {
		marker := req.URL.Query().Get("marker")
		asked = append(asked, marker)
		body := map[string]string{
			"":   "<EnumerationResults><Queues><Queue><Name>a</Name></Queue></Queues><NextMarker>m1</NextMarker></EnumerationResults>",
			"m1": "<EnumerationResults><Queues /><NextMarker>m2</NextMarker></EnumerationResults>", // an empty page is not the end
			"m2": "<EnumerationResults><Queues><Queue><Name>b</Name></Queue></Queues><NextMarker /></EnumerationResults>",
		}[marker]
		return (&fake{status: 200, body: "\ufeff" + body}).Do(req)
	}))
	names, err := a.Queues(t.Context(), "")
	if err != nil || fmt.Sprint(names, asked) != "[a b] [ m1 m2]" {
		t.Errorf("%v, %v, asked for %q", names, err, asked)
	}
	loop := &fake{status: 200, body: "<EnumerationResults><NextMarker>m</NextMarker></EnumerationResults>"}
	if _, err := openFake(t, loop).Queues(t.Context(), ""); !storage.Is(err, storage.MaybeDone) || loop.calls.Load() != 2 {
		t.Errorf("a list that never ends: %v after %d pages", err, loop.calls.Load())
	}
}
