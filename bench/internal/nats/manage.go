package nats

import (
	"encoding/json"
	"fmt"
	"strings"
)

// MakeStream makes a file stream of one subject with so many copies, and says which
// server leads it ("" where there is one server alone).
func MakeStream(at Address, name, subject string, replicas int) (leader string, err error) {
	config := fmt.Sprintf(`{"name":%q,"subjects":[%q],"storage":"file","retention":"limits","num_replicas":%d,"discard":"old","max_consumers":-1,"max_msgs":-1,"max_bytes":-1}`, name, subject, replicas)
	answer, err := Request(at, "$JS.API.STREAM.CREATE."+name, config)
	if err != nil {
		return "", err
	}
	if strings.Contains(answer, `"error":`) {
		return "", fmt.Errorf("a stream of JetStream: %s", answer)
	}
	var made struct{ Cluster struct{ Leader string } }
	if err := json.Unmarshal([]byte(answer), &made); err != nil {
		return "", fmt.Errorf("a stream of JetStream: %w", err)
	}
	return made.Cluster.Leader, nil
}

// DropStream deletes a stream, with its consumers.
func DropStream(at Address, name string) error {
	answer, err := Request(at, "$JS.API.STREAM.DELETE."+name, "")
	if err == nil && strings.Contains(answer, `"error":`) {
		err = fmt.Errorf("delete a stream of JetStream: %s", answer)
	}
	return err
}

// PushTo makes a consumer that delivers what is published from now on to a subject, and
// asks for no acknowledgement.
func PushTo(at Address, stream, subject string) error {
	return makeConsumer(at, stream, "push", fmt.Sprintf(`{"name":"push","deliver_subject":%q,"deliver_policy":"new","ack_policy":"none","replay_policy":"instant"}`, subject))
}

// ReadAll makes a consumer that gives the whole stream once, without acknowledgements.
func ReadAll(at Address, stream, name string) error {
	return makeConsumer(at, stream, name, fmt.Sprintf(`{"name":%q,"deliver_policy":"all","ack_policy":"none","replay_policy":"instant","max_ack_pending":-1,"mem_storage":true,"inactive_threshold":300000000000}`, name))
}

// Work makes a durable consumer whose messages are acknowledged one by one.
func Work(at Address, stream, name string, inFlight int) error {
	return makeConsumer(at, stream, name, fmt.Sprintf(`{"durable_name":%q,"deliver_policy":"all","ack_policy":"explicit","ack_wait":30000000000,"replay_policy":"instant","max_ack_pending":%d,"max_waiting":512}`, name, inFlight))
}

func makeConsumer(at Address, stream, name, config string) error {
	answer, err := Request(at, "$JS.API.CONSUMER.CREATE."+stream+"."+name, fmt.Sprintf(`{"stream_name":%q,"config":%s}`, stream, config))
	if err != nil {
		return err
	}
	if strings.Contains(answer, `"error":`) {
		return fmt.Errorf("a consumer of JetStream: %s", answer)
	}
	return nil
}
