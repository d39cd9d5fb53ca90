// Package arch keeps the plan of the house: which package may import which,
// which packages are pure, and a few habits that a reader relies on without
// looking. Its tests read the source of the whole module and fail on a broken
// rule; each rule stands beside its reason and beside a small module that
// breaks it, so that no rule can sleep. Sizes of files are reported only: an
// artificial split is worse than a long file.
//
// The rules look at syntax, not at types of imported packages, so a run takes
// well under a second and passes over packages that do not exist yet.
package arch
