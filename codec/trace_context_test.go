package codec

import (
	"bytes"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

func FuzzDecode(f *testing.F) {
	f.Add([]byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	f.Add([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\nrojo=00f067aa0ba902b7"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		sc, ok := DecodeTrace(b)
		if !ok {
			return
		}
		again, ok := DecodeTrace(EncodeTrace(sc))
		if !ok || again.TraceID() != sc.TraceID() || again.SpanID() != sc.SpanID() || again.IsSampled() != sc.IsSampled() {
			t.Errorf("%q is %v, and written again %v", b, sc, again)
		}
		if len(EncodeTrace(sc)) > maxTrace {
			t.Errorf("%d bytes", len(EncodeTrace(sc)))
		}
	})
}

func TestAStateThatIsTooLongIsLeftOut(t *testing.T) {
	state, err := trace.ParseTraceState("a=" + string(bytes.Repeat([]byte("x"), 200)) + ",b=" + string(bytes.Repeat([]byte("y"), 256)))
	must(t, err)
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceState: state})
	if b := EncodeTrace(sc); len(b) != 55 {
		t.Errorf("%q", b)
	}
}
