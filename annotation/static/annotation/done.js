// Sends what an earlier page could not; there is nothing to see of it if nothing waits.
import { openDesk } from "./desk.js";

const { root, queue } = openDesk(() => {});
root.hidden = !queue.all().length;
