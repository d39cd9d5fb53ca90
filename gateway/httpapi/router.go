package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

// router is the whole API on one screen.
func (a *API) router() http.Handler {
	m := chi.NewRouter()
	m.Use(a.edge)
	m.NotFound(a.answer(notFound))
	m.MethodNotAllowed(a.answer(a.methodNotAllowed)) // for methods that chi has no name for

	for _, rt := range []route{
		{"/topics", actions{get: a.listTopics, post: a.admin(a.createTopic)}},
		{"/topics/subscribe", actions{post: a.subscribe}}, // its body names the topic
		{"/topics/{topic}", actions{
			get: a.may(access.Subscribe, a.poll), post: a.may(access.Publish, a.produce),
			patch: a.admin(a.alterTopic), del: a.admin(a.deleteTopic),
		}},
		{"/topics/{topic}/purge", actions{post: a.admin(a.purgeTopic)}},
		{"/topics/{topic}/metadata", actions{get: a.describeTopic}},
		{"/topics/{topic}/events", actions{get: resuming(a.may(access.Subscribe, a.events)), endless: true}},
		{"/subscriptions/{subscription}/events", actions{get: resuming(a.subscriptionEvents), endless: true}}, // its id names the topic
		{"/topics/{topic}/{partition}/{offset}/status", actions{get: a.may(access.Group, a.recordStatus)}},
		{"/groups/{topic}", actions{get: a.may(access.Group, a.listGroups)}},
		{"/groups/{topic}/register", actions{post: a.may(access.Group, a.registerGroup)}},
		{"/groups/{topic}/node", actions{post: a.may(access.Group, a.joinGroup)}},
		{"/groups/{topic}/{group}", actions{
			get: a.may(access.Group, a.describeGroup), patch: a.may(access.Group, a.alterGroup), del: a.may(access.Group, a.deleteGroup),
		}},
		{"/groups/{topic}/{group}/messages", actions{get: a.may(access.Group, a.groupMessages), changes: true}},
		{"/groups/{topic}/{group}/ack", actions{post: a.may(access.Group, a.settle)}},
		{"/groups/{topic}/{group}/offsets", actions{put: a.may(access.Group, a.moveGroup)}},
		{"/groups/{topic}/{group}/nodes/{member}", actions{del: a.may(access.Group, a.leaveGroup)}},
		{"/groups/{topic}/{group}/nodes/{member}/heartbeat", actions{post: a.may(access.Group, a.heartbeat)}},
		{"/requests/{topic}", actions{post: a.may(access.Request, a.request)}},
		{"/replies/{inbox}", actions{post: a.respond}}, // its inbox names the topic
		{"/nodes", actions{get: a.admin(a.listNodes)}},
		{"/nodes/{node}", actions{get: a.admin(a.describeNode)}},
		{"/nodes/{node}/drain", actions{post: a.admin(a.drainNode)}},
		{"/alerts", actions{get: a.admin(a.listAlerts)}},
		{"/connections", actions{get: a.admin(a.listConnections)}},
		{"/connections/{connection}", actions{del: a.admin(a.dismissConnection)}},
		{"/tickets", actions{post: a.issueTicket}},
		{"/metrics", actions{get: a.admin(a.metricsPage())}},
		{"/ws", actions{get: handler(a.cfg.WebSocket), endless: true, greets: true}},

		{"/healthz", actions{get: a.healthz, open: true}},
		{"/readyz", actions{get: a.readyz, open: true}},
		{"/openapi.json", actions{get: a.document(openAPI), open: true}},
		{"/asyncapi.json", actions{get: a.document(asyncAPI), open: true}},
		{"/problems", actions{get: a.listProblems, open: true}},
		{"/problems/{code}", actions{get: a.problemPage, open: true}},
	} {
		a.at(m, rt)
	}
	if a.cfg.Pages != nil {
		a.at(m, route{"/", actions{get: a.page, open: true}})
		a.at(m, route{"/assets/*", actions{get: a.page, open: true}})
	}
	for pattern, what := range absent {
		m.Handle(pattern, a.answer(func(http.ResponseWriter, *http.Request) error {
			return fault.New(fault.NotFound, "this version has no %s; /openapi.json lists every call it has", what)
		}))
	}
	return m
}

// absent are the calls of the contract that this version does not have.
var absent = map[string]string{
	"/topics/repartition": "repartition",
}

// route is one address and what can be done there.
type route struct {
	pattern string
	actions
}

type actions struct {
	get, post, put, patch, del action
	endless                    bool // GET ends when its client leaves: no HEAD
	changes                    bool // GET changes something: no HEAD
	open                       bool // nobody is asked who they are
	greets                     bool // asks by itself who came without a word
}

// methods of an address, as its Allow header lists them.
func (x actions) methods() []string {
	list := []string{http.MethodOptions}
	for _, m := range []struct {
		name string
		run  action
	}{{http.MethodGet, x.get}, {http.MethodPost, x.post}, {http.MethodPut, x.put}, {http.MethodPatch, x.patch}, {http.MethodDelete, x.del}} {
		if m.run != nil {
			list = append(list, m.name)
		}
	}
	if x.get != nil && !x.endless && !x.changes {
		list = append(list, http.MethodHead)
	}
	slices.Sort(list)
	return list
}

func (x actions) of(method string) action {
	switch method {
	case http.MethodGet:
		return x.get
	case http.MethodHead:
		if !x.endless && !x.changes {
			return x.get
		}
	case http.MethodPost:
		return x.post
	case http.MethodPut:
		return x.put
	case http.MethodPatch:
		return x.patch
	case http.MethodDelete:
		return x.del
	}
	return nil
}

// at registers an address for every method: what it does not do it refuses
// itself, for the router would go on to an address with a parameter
// (/topics/subscribe is no topic), and does not tell a handler of ours what is
// allowed.
func (a *API) at(m chi.Router, rt route) {
	a.table = append(a.table, rt)
	allow := strings.Join(rt.methods(), ", ")
	m.Handle(rt.pattern, a.answer(func(w http.ResponseWriter, r *http.Request) error {
		if run := rt.of(r.Method); run != nil {
			return a.admit(w, r, rt.actions, run)
		}
		w.Header().Set("Allow", allow)
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return refuseMethod(r, allow)
	}))
}

func refuseMethod(r *http.Request, allow string) error {
	return fault.New(fault.MethodNotAllowed, "%s is not allowed at this address; it takes %s", clip(r.Method), allow)
}

// methodNotAllowed answers a method that the router has no name for.
func (a *API) methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	c := chi.RouteContext(r.Context())
	pattern := c.Routes.Find(chi.NewRouteContext(), http.MethodGet, c.RoutePath)
	for _, rt := range a.table {
		if rt.pattern == pattern {
			allow := strings.Join(rt.methods(), ", ")
			w.Header().Set("Allow", allow)
			return refuseMethod(r, allow)
		}
	}
	return notFound(w, r)
}

func notFound(_ http.ResponseWriter, r *http.Request) error {
	return fault.New(fault.NotFound, "there is nothing at %q; /openapi.json lists every call", clip(r.URL.Path))
}

// handler makes an action of a handler that answers its own errors.
func handler(h http.Handler) action {
	return func(w http.ResponseWriter, r *http.Request) error {
		h.ServeHTTP(w, r)
		return nil
	}
}
