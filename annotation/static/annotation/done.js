// Sends what an earlier page could not; there is nothing to see of it if nothing waits.
import { openDesk } from "./desk.js";

const { root, queue } = openDesk(() => {});
const allStored = document.querySelector("[data-all-stored]");
root.hidden = !queue.all().length;
if (allStored) allStored.hidden = !root.hidden; // what waits may never be taken here
