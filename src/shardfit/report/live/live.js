// Keeps the page up to date: asks for it again, and puts it in place if it has changed.

const OFTEN = 2000; // milliseconds
const SELDOM = 15000; // while nobody looks

let shown = "";
let timer = setTimeout(look, OFTEN);

async function look() {
  clearTimeout(timer);
  try {
    const answer = await fetch(`${location.pathname}?part=main`, { cache: "no-store" });
    const text = await answer.text();
    if (answer.ok && text !== shown) put((shown = text));
    document.body.classList.toggle("lost", !answer.ok);
  } catch {
    document.body.classList.add("lost"); // the server has ended, or the network is gone
  }
  clearTimeout(timer);
  timer = setTimeout(look, document.hidden ? SELDOM : OFTEN);
}

function put(text) {
  const across = [...document.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  document.querySelector("main").innerHTML = text;
  document.querySelectorAll(".scroll").forEach((each, i) => (each.scrollLeft = across[i] ?? 0));
  name();
}

// the tab tells how the run is doing while another one is looked at
function name() {
  const words = ["main .badge", "h1"].map((each) => document.querySelector(each)?.innerText);
  document.title = [...words, "shardfit"].filter(Boolean).join(" · ");
}

name();

document.addEventListener("visibilitychange", () => document.hidden || look());
