// Package page is the page that shows a workload to people: one document, with its script and
// styles embedded, that gets what it shows over one stream of server-sent events.
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
// The page is read only unless the configuration names a file with a token. Requests that act, or
// show bodies of tasks, then need that token in a header, from this page's origin alone. Host names
// are checked by who serves the handler (admin.Server).
package page
