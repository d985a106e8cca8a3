package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// client posts spans (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
type client struct {
	url    string
	shown  string // the same, without what may be secret
	header http.Header
	gzip   bool
	wait   time.Duration // for one batch, including retries
	http   *http.Client
	// refused is called with the number of spans that the collector refused from a batch that it took,
	// perhaps 0, and with its text.
	refused func(spans int64, says string)
}

const (
	defaultEndpoint = "http://localhost:4318"
	path            = "/v1/traces"
	defaultWait     = 10 * time.Second
	// Pauses between two tries of one batch double from the first on.
	firstPause = 500 * time.Millisecond
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 64 << 10
	// maxSaid bounds what is told of the collector's text, in bytes.
	maxSaid = 200
)

// newClient reads the exporter's variables.
func newClient() (*client, error) {
	if e := os.Getenv("OTEL_TRACES_EXPORTER"); e != "" && e != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not known here; use otlp, or none", e)
	}
	if p := first("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not spoken here; "+
			"use http/protobuf, and the collector's port for it (4318)", p)
	}
	c := &client{header: http.Header{}, wait: defaultWait, refused: func(int64, string) {}}
	at := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if at == "" {
		base := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), defaultEndpoint)
		at = strings.TrimSuffix(base, "/") + path
	}
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil,
			errors.New("OTEL_EXPORTER_OTLP_ENDPOINT: it is not an address; use one " +
				"such as http://localhost:4318")
	}
	c.url, c.shown = u.String(), u.Scheme+"://"+u.Host+u.Path
	switch z := first("COMPRESSION"); z {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION: %q is not known; use gzip or none", z)
	}
	if text := first("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 1 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT: %q is not a number of milliseconds", text)
		}
		c.wait = time.Duration(ms) * time.Millisecond
	}
	if err := c.headers(first("HEADERS")); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = tlsConfig(); err != nil {
		return nil, err
	}
	// A redirection is an error: the headers may hold a key, which is for the collector alone.
	c.http = &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return c, nil
}

// headers reads name=value pairs with commas between them, both percent-encoded. An error does not
// show values, which may be keys.
func (c *client) headers(text string) error {
	if text == "" {
		return nil
	}
	for i, pair := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		name, err := url.PathUnescape(strings.TrimSpace(name))
		value, err2 := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || err2 != nil || name == "" {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: part %d is not name=value", i+1)
		}
		// Otherwise every request would fail, once there are spans. If a part is cut wrongly its name may
		// be a key, so the name is not shown either.
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: the name in part %d cannot be that of a header",
				i+1)
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: the value in part %d cannot be that of a header",
				i+1)
		}
		c.header.Set(name, value)
	}
	return nil
}

// tlsConfig trusts the named authority, and shows the named certificate.
func tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := first("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file) //nolint:gosec // its owner names it
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("OTEL_EXPORTER_OTLP_CERTIFICATE: the file holds no certificate in PEM")
		}
	}
	if cert, key := first("CLIENT_CERTIFICATE"), first("CLIENT_KEY"); cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Start and Stop are otlptrace.Client's: it has nothing to do.
func (c *client) Start(context.Context) error { return nil }

// Stop lets connections go.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces posts a batch until it is taken or the time for it is over. Only what the standard
// calls retryable is posted again.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// On the wire a TracesData is the same as an ExportTraceServiceRequest, whose package would link
	// gRPC.
	text, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(text); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		text = b.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	for pause := firstPause; ; pause *= 2 {
		again, after, err := c.post(ctx, text)
		if err == nil || !again {
			return err
		}
		t := time.NewTimer(max(pause, after))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

func (c *client) post(
	ctx context.Context, text []byte,
) (again bool, after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(text))
	if err != nil {
		return false, 0, errors.New("the request cannot be made")
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "queuepump")
	if c.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	answer, err := c.http.Do(r)
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err // without the address, which may hold a secret
	}
	if err != nil {
		return ctx.Err() == nil, 0, err
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode/100 == 2 {
		if spans, says := partial(said); spans > 0 || says != "" {
			c.refused(spans, c.plain(says))
		}
		return false, 0, nil
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		after = min(time.Duration(seconds)*time.Second, c.wait)
	}
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		again = true
	}
	return again, after, fmt.Errorf("the collector answered %s", answer.Status)
}

// partial reads what an ExportTraceServiceResponse says of spans that were not taken
// (partial_success). A body that is not such a message says nothing.
func partial(answer []byte) (spans int64, says string) {
	fields(answer, func(n protowire.Number, success []byte, _ uint64) {
		if n != 1 {
			return
		}
		fields(success, func(n protowire.Number, text []byte, value uint64) {
			switch n {
			case 1:
				spans = max(int64(value), 0)
			case 2:
				says = string(text)
			}
		})
	})
	return spans, says
}

// fields calls do for each field of a message that has bytes or a varint.
func fields(b []byte, do func(n protowire.Number, text []byte, value uint64)) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return
		}
		b = b[size:]
		whole := protowire.ConsumeFieldValue(n, kind, b)
		if whole < 0 {
			return
		}
		switch kind {
		case protowire.BytesType:
			text, _ := protowire.ConsumeBytes(b)
			do(n, text, 0)
		case protowire.VarintType:
			value, _ := protowire.ConsumeVarint(b)
			do(n, nil, value)
		}
		b = b[whole:]
	}
}

// plain is a text of the collector as a log may have it: short, and without the headers that it was
// sent, because one may be a key.
func (c *client) plain(says string) string {
	for _, values := range c.header {
		for _, value := range values {
			if value != "" {
				says = strings.ReplaceAll(says, value, "...")
			}
		}
	}
	if len(says) > maxSaid {
		says = says[:maxSaid] + "..."
	}
	return strings.ToValidUTF8(says, "")
}
