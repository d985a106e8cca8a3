package codec

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// Quarantined is the envelope in text with c as its cause, in place of any cause it has; nothing
// else changes. The part behind the header is carried over as it is, without unpacking or even
// decoding it, so an envelope that is truncated or corrupt behind its header can be quarantined as
// well.
//
// Reason and Instance are cut to their limits and Detail to what fits, never within a character.
// The error is ErrTooLarge if the cause does not fit into 64 KiB even without a detail (it does if
// the Builder left [DefaultHeadroom]), or that of [ReadHeader].
func Quarantined(text []byte, c Cause) ([]byte, error) {
	fr, err := readFrame(text)
	if err != nil {
		return nil, err
	}
	c.Reason = clip(c.Reason, maxReason)
	c.Instance = clip(c.Instance, maxInstance)
	c.Detail = clip(c.Detail, maxDetail)
	fr.Cause = &c
	out, excess := fr.text()
	for excess > 0 && c.Detail != "" {
		// Four characters carry three bytes. Padding may hide up to two bytes
		// of what was cut, then the next turn takes them.
		c.Detail = clip(c.Detail, len(c.Detail)-max(1, excess/4*3))
		out, excess = fr.text()
	}
	if excess > 0 {
		return nil, wrap(ErrTooLarge, "%d characters with its cause", len(out))
	}
	return out, nil
}

// Restamped is the envelope in text with another attempt, generation and account of "not now", and
// no cause; nothing else changes and nothing is unpacked. It marks an attempt before a suspicious
// envelope is opened, sends back an envelope if no task of it was finished, and
// redrives one from quarantine. The error is ErrTooLarge if the numbers grew and left no
// room, or that of [ReadHeader].
func Restamped(text []byte, attempt, generation uint32, later NotNow) ([]byte, error) {
	fr, err := readFrame(text)
	if err != nil {
		return nil, err
	}
	fr.Attempt, fr.Generation, fr.NotNow, fr.Cause = attempt, generation, later, nil
	if later != (NotNow{}) {
		fr.Version = max(fr.Version, NotNowSince)
	}
	out, excess := fr.text()
	if excess > 0 {
		return nil, wrap(ErrTooLarge, "%d characters", len(out))
	}
	return out, nil
}

// text is the frame as a text with the header it has now, and by how many
// characters that is too long.
func (fr *frame) text() (text []byte, excess int) {
	head := newSlab(0)
	defer head.free()
	head.b = appendHead(head.b, &fr.Header, fr.packed)
	text = make([]byte, 0, base64.StdEncoding.EncodedLen(len(head.b))+len(fr.body))
	text = base64.StdEncoding.AppendEncode(text, head.b)
	text = append(text, fr.body...)
	return text, max(0, len(text)-maxText)
}

// clip is s as valid UTF-8 of at most n bytes, cut between characters.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
