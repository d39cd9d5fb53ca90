package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/fault"
)

// controlCall is a call about topics and nodes, and what becomes of it. N in its path,
// body and words is another name for each node that is asked.
type controlCall struct {
	method, path, body string
	status             int
	says               string // a part of the answer: the code, where it is a problem
}

// controlCalls are right and wrong in turn, as the contract has them.
func controlCalls() []controlCall {
	large := `{"name":"` + strings.Repeat("a", 70<<10) + `"}`
	return []controlCall{
		{"POST", "/topics/", `{"name":"N","partitions":2}`, 201, `"replicas":3,"min_insync":2`},
		{"POST", "/topics/", `{"name":"N","partitions":2}`, 200, `"name":"N"`},
		{"POST", "/topics/", `{"name":"N","partitions":3}`, 409, "topic-exists"},
		{"POST", "/topics/", `{"name":"N2","replicas":4}`, 400, "the number of brokers"},
		{"POST", "/topics/", `{"name":"N2","replicas":2,"min_insync":3}`, 400, "the number of replicas"},
		{"POST", "/topics/", `{"name":"N2","partitions":257}`, 400, "from 1 to 256"},
		{"POST", "/topics/", `{"name":"N/2"}`, 400, "begins with a letter"},
		{"POST", "/topics/", `{"name":"subscribe"}`, 400, "reserved-name"},
		{"POST", "/topics/", `{"name":"N2","replica":1}`, 400, "did you mean"},
		{"POST", "/topics/", large, 413, "message-too-large"},
		{"GET", "/topics/N/metadata", "", 200, `"generation":1`},
		{"GET", "/topics/a%2Fb/metadata", "", 404, "topic-not-found"},
		{"PATCH", "/topics/N", `{"replicas":1}`, 400, "give a min_insync with it"},
		{"PATCH", "/topics/N", `{"replicas":2}`, 200, `"replicas":2,"min_insync":2`},
		{"PATCH", "/topics/N", `{"replicas":1,"min_insync":1}`, 200, `"replicas":1,"min_insync":1`},
		{"PATCH", "/topics/N", `{"replicas":3,"min_insync":2}`, 200, `"replicas":3,"min_insync":2`},
		{"PATCH", "/topics/N", `{"replicas":4}`, 400, "the number of brokers"},
		{"PATCH", "/topics/N", `{"min_insync":4}`, 400, "the number of replicas"},
		{"PATCH", "/topics/N", `{"partitions":4}`, 400, "cannot be changed here"},
		{"PATCH", "/topics/nobody", `{"replicas":2}`, 404, "topic-not-found"},
		{"PUT", "/topics/N", `{"replicas":2}`, 405, "method-not-allowed"},
		{"GET", "/nodes/n2", "", 200, `"name":"n2"`},
		{"GET", "/nodes/nobody", "", 404, "node-not-found"},
		{"GET", "/nodes/a%2Fb", "", 404, "node-not-found"},
		{"POST", "/nodes/nobody/drain", `{}`, 404, "node-not-found"},
		{"POST", "/nodes/n2/drain", `{"cancle":true}`, 400, "did you mean"},
		{"POST", "/nodes/n2/drain", large, 413, "message-too-large"},
		{"POST", "/nodes/n2/drain", "", 202, `"state":"draining"`},
		{"POST", "/nodes/n2/drain", `{"cancel":false}`, 202, `"state":"draining"`},
		{"POST", "/nodes/n2/drain", `{"cancel":true}`, 202, `"state":"alive"`},
		{"POST", "/nodes/n2/drain", `{"cancel":true}`, 202, `"state":"alive"`},
		{"DELETE", "/nodes/n2", "", 405, "method-not-allowed"},
		{"GET", "/connections/?node=nobody", "", 404, "node-not-found"},
		{"GET", "/alerts?since=1", "", 400, "unknown-field"},
		{"DELETE", "/topics/N", "", 204, ""},
		{"DELETE", "/topics/N", "", 404, "topic-not-found"},
	}
}

// TestControlFromEveryNode makes every call about topics and nodes, right and wrong, at
// each node of a cluster; then with every node drained, with a node down, and with most
// of them down. Each is answered in time, by the contract.
func TestControlFromEveryNode(t *testing.T) {
	beside(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	c.API().CreateTopic(t, "before", `"partitions":3`)
	for _, m := range c.Members {
		makeCalls(t, m, "all run", time.Second, controlCalls())
	}

	var drains, returns []controlCall
	for _, m := range c.Members {
		drains = append(drains, controlCall{"POST", "/nodes/" + m.Name + "/drain", "", 202, `"state":"draining"`})
		returns = append(returns, controlCall{"POST", "/nodes/" + m.Name + "/drain", `{"cancel":true}`, 202, `"state":"alive"`})
	}
	makeCalls(t, c.Members[0], "all are drained", time.Second, drains)
	for _, m := range c.Members { // who has nowhere to go is served
		makeCalls(t, m, "all are drained", time.Second, []controlCall{
			{"POST", "/topics/before", `1`, 201, `"topic":"before"`},
			{"POST", "/topics/", `{"name":"drained-N"}`, 503, "0 are alive and not draining"},
			{"PATCH", "/topics/before", `{"retention":{"age":"24h"}}`, 200, `"age":"24h"`},
			{"GET", "/readyz", "", 503, "draining"},
		})
	}
	makeCalls(t, c.Members[1], "no more drained", time.Second, returns)

	down := c.Others(c.CoordinatorLeader())[1]
	down.Kill()
	c.AwaitState(slack(truthIn), down, "dead")
	for _, m := range c.Others(down) {
		makeCalls(t, m, down.Name+" is down", time.Second, []controlCall{
			{"POST", "/topics/", `{"name":"N","partitions":3}`, 201, `"replicas":3`},
			{"POST", "/topics/N", `1`, 201, `"topic":"N"`},
			{"PATCH", "/topics/N", `{"replicas":2}`, 200, `"replicas":2`},
			{"POST", "/nodes/" + down.Name + "/drain", "", 400, "only a node that is alive"},
			{"GET", "/connections/?node=" + down.Name, "", 200, `"missing":["` + down.Name + `"]`},
			{"GET", "/nodes/" + down.Name, "", 200, `"state":"dead"`},
			{"DELETE", "/topics/N", "", 204, ""},
		})
	}

	last := c.Others(down)[0]
	other := c.Others(down, last)[0]
	other.Kill()
	awaitReadiness(t, last, 503, "no other gateway answers")
	makeCalls(t, last, "most are down", 2*time.Second, []controlCall{
		{"POST", "/topics/", `{"name":"N"}`, 503, "coordinator-unavailable"},
		{"PATCH", "/topics/before", `{"min_insync":1}`, 503, "coordinator-unavailable"},
		{"DELETE", "/topics/before", "", 503, "coordinator-unavailable"},
		{"POST", "/nodes/" + other.Name + "/drain", "", 503, "coordinator-unavailable"},
		{"GET", "/topics/before/metadata", "", 200, `"name":"before"`},
		{"GET", "/nodes/" + other.Name, "", 200, `"state":"suspect"`},
	})
}

// makeCalls makes calls at a node and holds each answer against what is wanted of it.
func makeCalls(t *testing.T, m *harness.Member, when string, bound time.Duration, calls []controlCall) {
	t.Helper()
	api := client.New(m.URL)
	defer api.HTTP.CloseIdleConnections()
	named := strings.NewReplacer("N", "at-"+m.Name)
	for _, x := range calls {
		what := fmt.Sprintf("%s, %s %s %.40s at %s", when, x.method, x.path, x.body, m.Name)
		typed := ""
		if x.body != "" {
			typed = "application/json"
		}
		began := time.Now()
		ans, err := api.Do(t.Context(), x.method, named.Replace(x.path), typed, named.Replace(x.body))
		took := time.Since(began)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if ans.Status != x.status || !strings.Contains(ans.Body, named.Replace(x.says)) {
			t.Errorf("%s: %d %.400s, want %d with %s", what, ans.Status, ans.Body, x.status, x.says)
		}
		if took > slack(bound) {
			t.Errorf("%s was answered after %s, %s at most", what, took, bound)
		}
		if ans.Status < 400 {
			continue
		}
		problem, err := ans.Problem()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		kind, known := fault.ByCode(problem.Code)
		if !known || kind.Status() != ans.Status || problem.Detail == "" {
			t.Errorf("%s: %d is no problem of the contract: %s", what, ans.Status, ans.Body)
		}
		if ans.Status == 503 && ans.Header.Get("Retry-After") == "" || ans.Status == 405 && ans.Header.Get("Allow") == "" {
			t.Errorf("%s: %d lacks its header", what, ans.Status)
		}
	}
}
