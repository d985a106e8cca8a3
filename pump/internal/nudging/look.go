package nudging

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// lookTimeout is what a look at another process's admin port may take: the look asks whether the
	// port can be reached, and has longer than a nudge.
	lookTimeout = time.Second
	// largestLook bounds what is read of an answer: a state of a thousand accounts has 200 KB.
	largestLook = 1 << 20
)

// Get asks another process's admin port for a page, with the same distrust of its address as a
// nudge; here says that the process is on this machine. Any other answer than 200 is an error.
func (c *nudgeClient) Get(ctx context.Context, address, path string, here bool) ([]byte, error) {
	if err := CheckAddress(address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	u := url.URL{Scheme: "http", Host: address, Path: path}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAddress, err)
	}
	client := c.elsewhere
	if here {
		client = c.here
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, largestLook))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered with %d", path, answer.StatusCode)
	}
	return body, nil
}
