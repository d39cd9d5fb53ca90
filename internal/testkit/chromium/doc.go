// Package chromium looks at pages as a person with a browser does: it drives a headless
// Chromium over its DevTools protocol, for tests. What a page of a test says wrong
// on its console is kept, so that a test can ask for it. Where there is no browser the test is
// skipped, aloud.
package chromium
