// Package generate makes the files by which others watch, run and scale the pump: alert rules and a
// dashboard on the metrics of this version, manifests, and the storage accounts themselves.
// docs/metrics.md lists the metrics, docs/runbook.md says what to do about each alert.
package generate
