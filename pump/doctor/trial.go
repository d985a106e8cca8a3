package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// A doctor names its queue and row by when it made them, in hexadecimal seconds by the account's
// clock, and by chance. No queue of a workload is named so: those end with two digits or with
// -poison. No workload's members have a partition with a dot.
const (
	trialQueue     = "-doctor-"
	trialPartition = ".doctor"
	// trialTable is tried where the table of workloads is not there yet. It has the same name for all
	// doctors, because tables cannot be listed: a doctor that finds it gone, as another has removed
	// it, learns nothing.
	trialTable = "queuepumpdoctor"
	// leftAfter is the age above which what a doctor has made counts as left over: a whole Check takes
	// ten seconds, and a request acts within 30 s of its sending.
	leftAfter = time.Minute
)

// trialName is the name, behind the prefix, of a thing that is made now.
func (p *patient) trialName() string {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%08x%s", uint32(p.now().Unix()), hex.EncodeToString(b[:]))
}

var trialNamed = regexp.MustCompile(`^[0-9a-f]{12}$`)

// leftOver reports whether a doctor made the thing of this name, long ago.
func (p *patient) leftOver(name string) bool {
	if !trialNamed.MatchString(name) {
		return false
	}
	at, err := strconv.ParseUint(name[:8], 16, 32)
	return err == nil && p.now().Sub(time.Unix(int64(at), 0)) > leftAfter
}

// refusals are the operations that an account does not allow.
type refusals struct {
	refused    []string // operations, in the order in which they were tried
	cause      error    // of the first
	everything bool     // nothing was allowed
}

func (r *refusals) refuse(what string, err error) {
	r.cause = cmp.Or(r.cause, err)
	if !slices.Contains(r.refused, what) {
		r.refused = append(r.refused, what)
	}
}

// try tries what a workload needs of the account.
func (p *patient) try(ctx context.Context) {
	trial, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	defer func() {
		last, cancel := p.removing(ctx)
		defer cancel()
		p.removeLeftovers(last)
	}()
	allowed := p.tryQueue(trial)
	if p.silent == nil {
		allowed = p.tryTable(trial) || allowed
	}
	if p.silent == nil {
		p.tryBlobs(trial)
	}
	p.everything = !allowed && len(p.refused) > 0
}

// removing goes on when the trial's time is over or the user has interrupted; it does not prolong
// the Check.
func (p *patient) removing(ctx context.Context) (context.Context, context.CancelFunc) {
	end := p.c.began.Add(p.c.o.Timeout - reserve)
	if soon := time.Now().Add(removeTimeout); soon.Before(end) {
		end = soon
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}

// step notes the outcome of a request; done says that it was allowed.
func (p *patient) step(what string, err error) (done bool) {
	switch {
	case err == nil:
		return true
	case storage.Is(err, storage.Auth):
		p.refuse(what, err)
	case storage.Is(err, storage.MaybeDone):
		p.silent = err
	case storage.Is(err, storage.Missing) && !queues.NotThere(err) && !tableNotThere(err):
		p.silent = err // the account itself
	}
	return false
}

func tableNotThere(err error) bool {
	e, ok := queues.AsError(err)
	return ok && e.Code == storage.Missing && strings.HasPrefix(e.Service, "Table")
}

// tryQueue makes a queue, puts a message through what happens to messages, and drops the queue.
func (p *patient) tryQueue(ctx context.Context) (allowed bool) {
	name := p.c.cfg.Workload + trialQueue + p.trialName()
	q := p.of.Storage.Queue(name)
	err := q.Create(ctx)
	if storage.Ambiguous(err) || err == nil {
		defer func() {
			last, cancel := p.removing(ctx)
			defer cancel()
			if err := q.Drop(last); storage.Is(err, storage.Auth) {
				p.refuse("delete queues", err)
			}
		}()
	}
	if !p.step("make queues", err) {
		if p.silent == nil {
			// A credential may be good only for the queues that exist.
			work := p.of.Storage.Queue(workload.PoisonQueue(p.c.cfg.Workload))
			_, err := work.Peek(ctx, 1)
			return p.step("read messages", err) || queues.NotThere(err)
		}
		return false
	}
	if _, err := q.Put(ctx, []byte("the doctor's own"), 0); !p.step("put messages", err) {
		_, err := q.Get(ctx, 1, time.Second)
		p.step("get messages", err)
		return true
	}
	ms, err := q.Get(ctx, 1, leftAfter)
	if !p.step("get messages", err) || len(ms) == 0 {
		return true
	}
	receipt, err := q.Renew(ctx, ms[0].Receipt, leftAfter)
	if !p.step("hide messages for longer", err) {
		receipt = ms[0].Receipt
	}
	p.step("delete messages", q.Delete(ctx, receipt))
	_, err = q.Count(ctx)
	p.step("count messages", err)
	return true
}

// tryTable writes, reads, changes and removes a row.
func (p *patient) tryTable(ctx context.Context) (allowed bool) {
	table := p.of.Storage.Table(row.TableName)
	e := storage.Entity{
		Partition:  p.c.cfg.Workload + trialPartition,
		Row:        p.trialName(),
		Properties: map[string]any{"Made": "by a doctor"},
	}
	write := func(mode storage.Mode) error {
		tag, err := table.Write(ctx, storage.Write{Mode: mode, Entity: e})
		if err == nil {
			e.ETag = tag
		}
		return err
	}
	err := write(storage.Insert)
	if tableNotThere(err) { // no workload was made in this account yet
		table = p.of.Storage.Table(trialTable)
		err := table.Create(ctx)
		if tableNotThere(err) || !p.step("make tables", err) { // another doctor's, being removed
			return err == nil
		}
		defer func() {
			last, cancel := p.removing(ctx)
			defer cancel()
			_ = table.Drop(last)
		}()
		if err = write(storage.Insert); tableNotThere(err) {
			return true
		}
	} else if err != nil && !storage.Ambiguous(err) && !storage.Is(err, storage.Auth) {
		// For example where the address of the tables does not follow from that of the queues.
		if p.of.Name == p.c.cfg.Control {
			mend := "mend " + p.c.o.Config + ": give the account's tableEndpoint"
			p.c.find(CheckConfiguration, Error, p.of.Name, mend, "its table cannot be written: %v", err)
		}
		return false
	}
	if !p.step("insert rows", err) {
		_, err := table.Read(ctx, e.Partition, e.Row)
		return p.step("read rows", err) || storage.Is(err, storage.Gone)
	}
	_, err = table.Read(ctx, e.Partition, e.Row)
	p.step("read rows", err)
	p.step("change rows", write(storage.Replace))
	p.step("remove rows", write(storage.Remove))
	return true
}

// trialBlob has the same name for all doctors, so that the next one removes what was left over.
const trialBlob = "doctor"

// tryBlobs makes the workload's containers, as the workload would, and puts a blob into each, reads
// and removes it.
func (p *patient) tryBlobs(ctx context.Context) {
	for _, name := range p.c.boxes {
		box := p.of.Storage.Container(name)
		err := box.Create(ctx)
		if storage.Is(err, storage.Invalid) {
			mend := "mend " + p.c.o.Config + ": give the account's blobEndpoint"
			p.c.find(CheckConfiguration, Error, p.of.Name, mend, "its blobs cannot be reached: %v", err)
			return
		}
		if !p.step("make containers", err) {
			return
		}
		p.step("put blobs", box.Put(ctx, trialBlob, []byte("the doctor's own"), nil))
		_, err = box.Get(ctx, trialBlob, 0, 1)
		p.step("read blobs", err)
		for _, err := range box.List(ctx, trialBlob, "") {
			p.step("list blobs", err)
		}
		p.step("delete blobs", box.Delete(ctx, trialBlob))
	}
}

// removeLeftovers removes what interrupted doctors have left. It ignores failures.
func (p *patient) removeLeftovers(ctx context.Context) {
	prefix := p.c.cfg.Workload + trialQueue
	names, err := p.of.Storage.Queues(ctx, prefix)
	if err != nil {
		return
	}
	for _, name := range names {
		if p.leftOver(strings.TrimPrefix(name, prefix)) && p.of.Storage.Queue(name).Drop(ctx) == nil {
			p.facts.Removed++
		}
	}
	table := p.of.Storage.Table(row.TableName)
	var rows []storage.Entity
	made := storage.Query{Partition: p.c.cfg.Workload + trialPartition, Select: []string{"Made"}}
	for e, err := range table.Query(ctx, made) {
		if err != nil {
			return
		}
		if p.leftOver(e.Row) {
			rows = append(rows, e)
		}
	}
	for _, e := range rows {
		if _, err := table.Write(ctx, storage.Write{Mode: storage.Remove, Entity: e}); err == nil {
			p.facts.Removed++
		}
	}
}

// needed are the operations without which work stands still. A credential without the others is
// enough if the queues and the table exist.
var needed = []string{
	"put blobs",
	"read blobs",
	"delete blobs",
	"read messages",
	"put messages",
	"get messages",
	"hide messages for longer",
	"delete messages",
	"read rows",
	"insert rows",
	"change rows",
	"remove rows",
}

// say tells of what the account refuses.
func (p *patient) say() {
	name := p.of.Name
	if p.off.Abs() >= clockBroken { // this explains every other refusal
		return
	}
	if p.everything {
		p.c.find(CheckCredentials, Error, name, "az storage account keys list --account-name "+name,
			"the account refuses the credential of %s: %v", p.c.o.Config, p.cause)
		return
	}
	refused := p.refused
	if name != p.c.cfg.Control { // its table holds the workload's rows, others only anchors
		refused = slices.DeleteFunc(
			slices.Clone(refused),
			func(what string) bool {
				return strings.HasSuffix(what, "rows") || strings.HasSuffix(what, "tables")
			},
		)
	}
	if len(refused) == 0 {
		return
	}
	severity, means := Warning, "queues and table must be there already"
	if slices.ContainsFunc(refused, func(what string) bool { return slices.Contains(needed, what) }) {
		severity, means = Error, "processors and distributors need that"
	}
	mend := fmt.Sprintf("az role assignment create --assignee ID --role 'Storage Queue Data "+
		"Contributor' --scope $(az storage account show --name %s --query id --output tsv), "+
		"and the same for 'Storage Table Data Contributor'", name)
	if strings.Contains(strings.Join(refused, " "), "blobs") {
		mend += " and 'Storage Blob Data Contributor'"
	}
	if signed := p.of.ConnectionString + p.of.Endpoint; strings.Contains(signed, "sig=") {
		mend = p.newSignature()
	}
	p.c.find(CheckRights, severity, name, mend, "the credential may not %s: %s (%v)",
		strings.Join(refused, ", "), means, p.cause)
}
