package distributor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/source"
)

// The distributor looks at a source before it makes anything for it: a misspelt name leaves no
// workload and no run behind, and a command that cannot start does not use up a distribution.

// troubled reports whether a source could not be read for a reason outside of the source.
func troubled(err error) bool {
	e, ok := errors.AsType[*pack.SourceError](err)
	return ok && !final(e.Err) && !source.OfSource(e.Err)
}

// fix looks up what r distributes, and fingerprints it.
func (d *Distributor) fix(ctx context.Context, r *run) (err error) {
	r.source = d.source
	if s, ok := d.source.(source.Fixer); ok {
		r.source, err = s.Fix(ctx, d.cfg.Log)
	}
	if err == nil {
		r.print, err = r.source.Fingerprint(ctx)
	}
	r.live = r.print == ""
	if err != nil {
		return &pack.SourceError{Err: err}
	}
	return nil
}

// distributorVersion changes whenever the same records would become other tasks than before, by
// other numbering or another bound of what is too large. A new format of envelopes changes it only
// if its header is longer, or its packing worse.
const distributorVersion = 2

// maxFingerprint is what [source.Source] allows, with our own part.
const maxFingerprint = 2 << 10

// fingerprint is the fingerprint of the source and of the settings that decide which records become
// tasks with which numbers (P2.3).
func (d *Distributor) fingerprint(of string) string {
	segments, bad := d.router.Current().Workload.Map.Segments, string(d.opts.OnBadLine)
	if d.opts.BlobAbove > 0 && d.opts.OnBadLine != BadLineFail {
		bad += "+blobs" // a large record has a number
	}
	return fmt.Sprintf("v%d S=%d bad=%s %s", distributorVersion, segments, bad, of)
}

// look fixes the source of a new run, and opens it.
func (d *Distributor) look(ctx context.Context, r *run) error {
	if err := d.fix(ctx, r); err != nil {
		return err
	}
	return r.peek(ctx)
}

// peek opens the source and, if it need not wait, reads the first record.
func (r *run) peek(ctx context.Context) error {
	reader, err := r.source.Open(ctx, nil)
	if err != nil {
		return &pack.SourceError{Err: err}
	}
	r.reader = reader
	try, ok := reader.(source.Looker)
	if !ok {
		return nil
	}
	ready, err := try.Look(ctx)
	if err == nil && ready {
		first := &pack.FirstRecord{Cursor: reader.AppendCursor(nil)}
		first.Rec, first.Err = reader.Next(ctx)
		r.first = first
		if _, bad := errors.AsType[*source.BadInput](first.Err); first.Err != nil &&
			first.Err != io.EOF && !bad {
			err = first.Err
		}
	}
	if err != nil {
		return &pack.SourceError{Err: err}
	}
	return nil
}

// firstGood is an error if the first record is bad and a bad one ends the run.
func (r *run) firstGood(policy BadLine) error {
	if policy != BadLineFail || r.first == nil {
		return nil
	}
	if bad, ok := errors.AsType[*source.BadInput](r.first.Err); ok {
		return bad
	}
	return nil
}

// close lets go of a source that was looked at and not read.
func (r *run) close() {
	if r != nil && r.reader != nil {
		r.reader.Close()
		r.reader = nil
	}
}

// moved reports whether anything was read here.
func (r *run) moved() bool {
	var before int64
	if r.from != nil {
		before = r.from.Tasks()
	}
	return r.count.Tasks.Load() > before
}
