package azsim

// Snapshot is what a partition of a table held at one moment. It never changes.
type Snapshot struct {
	table     *table
	partition string
	rows      []*entity
}

// Snapshot remembers one partition of a table, so that Restore can bring it back: as a fail-over to
// another region or a restore from a copy does. It is nil if the account or table does not exist; a
// partition without rows gives a snapshot like any other.
func (s *Sim) Snapshot(account, tableName, partition string) *Snapshot {
	t := s.table(account, tableName)
	if t == nil {
		return nil
	}
	p := &Snapshot{table: t, partition: partition}
	t.mu.RLock()
	defer t.mu.RUnlock()
	p.rows = t.within(p.holds)
	return p
}

// holds tells whether a row lies in what was remembered.
func (p *Snapshot) holds(e *entity) bool { return e.pk == p.partition }

// In gives the snapshot as one of another, existing table, also of another simulator. Restore then
// puts the rows into that table, where they can be read while their own table goes on.
func (p *Snapshot) In(s *Sim, account, tableName string) *Snapshot {
	return &Snapshot{s.table(account, tableName), p.partition, p.rows}
}

// Restore brings back what was remembered, in one moment: rows that changed are as they were, with
// the ETag and timestamp they had, rows made since are gone, rows removed since are there again. It
// returns how many rows differ from before. Other rows of the table stay. The table's rows may be
// written at the same time; a table deleted since stays deleted (0).
func (p *Snapshot) Restore() int {
	t := p.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return 0
	}
	before := make(map[rowKey]*entity)
	for _, e := range t.within(p.holds) {
		before[rowKey{e.pk, e.rk}] = e
	}
	n := 0
	for _, e := range p.rows {
		k := rowKey{e.pk, e.rk}
		if now := before[k]; now != e {
			if now != nil {
				t.graves[k] = max(t.graves[k], now.ticks)
			}
			t.rows.put(e)
			n++
		}
		delete(before, k)
	}
	for k, e := range before {
		t.bury(k, e)
		n++
	}
	return n
}

// DropRows takes rows out of a partition of a table as no client does: the rows for whose key
// `which` is true, or all of them if it is nil. It returns how many. It never calls which
// concurrently.
func (s *Sim) DropRows(account, tableName, partition string, which func(rowKey string) bool) int {
	t := s.table(account, tableName)
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.within(func(e *entity) bool { return e.pk == partition }) {
		if which == nil || which(e.rk) {
			t.bury(rowKey{e.pk, e.rk}, e)
			n++
		}
	}
	return n
}

func (s *Sim) table(account, name string) *table {
	a := s.accounts[account]
	if a == nil {
		return nil
	}
	return a.stores.Load().tables.(*tableStore).find(name)
}

// within returns the rows for which in is true; t.mu is held.
func (t *table) within(in func(*entity) bool) []*entity {
	var rows []*entity
	for _, c := range t.rows.chunks {
		for _, e := range c {
			if in(e) {
				rows = append(rows, e)
			}
		}
	}
	return rows
}

// bury removes a row, whose timestamp must not come back; t.mu is held.
func (t *table) bury(k rowKey, e *entity) {
	t.rows.remove(k)
	t.graves[k] = max(t.graves[k], e.ticks)
}
