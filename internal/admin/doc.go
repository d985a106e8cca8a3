// Package admin is the admin port of both binaries: whether a process is alive and ready, its
// metrics, its profiles, its state, and the nudges that other processes send it.
//
//	GET  /healthz        200 while the process can answer at all
//	GET  /readyz         200 if it does what it should; else 503 and the reasons
//	GET  /metrics        for Prometheus
//	GET  /state          what it is doing, as JSON
//	GET  /debug/pprof/   profiles, made when asked for
//	POST /nudge          a hint to look at something now (nudge.Handler)
//	GET  /page/          the page that shows the workload (package page)
//
// The port has no authentication and changes nothing, except what the page does for a viewer with
// its token. It listens on loopback unless told otherwise, and then belongs in a network whose
// members may know how the workload does. No answer holds a credential or the command line, and
// without the page's token none holds a task. A web page in a browser on the same machine cannot
// read it: the port answers only requests for an address of its own. So it refuses a name that an
// attacker lets point here (DNS rebinding), and any other origin.
//
// # Page
//
// Page is the page that shows a workload to people: one document with embedded script and styles.
// It gets its data over one stream of server-sent events.
//
//	GET  /page/               the document
//	GET  /page/assets/NAME    its script, styles and picture
//	GET  /page/events         the stream
//	GET  /page/hours          what rows of the history say of the last six hours
//	POST /page/redrive        puts what is in quarantine for a cause back, or says what that would do
//	POST /page/samples        tasks in quarantine with their keys and bodies
//	POST /page/stop           ends a redrive that is under way
//	POST /page/doctor         has the doctor look, in a workload of many queues
//
// The page shows one reading of the workload (status.Watcher), so that it cannot contradict `status
// --json`. One reader serves all viewers. Without a viewer it reads nothing. It makes at most
// [status.WatchRate] requests a second; only a doctor's look comes on top of that.
//
// The page is read only unless the configuration names a file with tokens. Requests that act, or
// show bodies of tasks, then need one for that in a header, and this page's origin. The server of
// the handler checks host names ([Server]).
//
// # Generate
//
// Generate makes the files that other programs need to watch, run and scale the pump: alert rules
// and a dashboard on the metrics of this version, manifests, and the storage accounts themselves.
// docs/metrics.md lists the metrics, docs/runbook.md says what to do about each alert.
package admin
