// Package pulse tells the leading coordinator of the members that this gateway has heard.
//
// Every sign of life is noted, the latest of each life, and all of them are told together
// every half a second. Who wants to know whether a life still counts asks: that is told
// within a few milliseconds, together with what else has come by then, and answered by
// the coordinator. While no coordinator answers, what was heard is kept with its time, so
// that nobody is younger than they are once one does.
package pulse
