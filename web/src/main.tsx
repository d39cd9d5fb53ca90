import { render } from "preact";
import { start } from "./live/pulse.js";
import { App } from "./shell/app.js";
import { listen } from "./shell/keys.js";

listen();
start();
render(<App />, document.getElementById("app")!);
