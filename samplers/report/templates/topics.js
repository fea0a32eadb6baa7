draw("topics").then(views => {
  const data = read("topics-data"), { topics, vocabulary } = data;
  const element = name => document.getElementById(name);
  const percent = (number, digits = 1) => `${(100 * number).toFixed(digits)}%`;
  const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const topicButton = (slot, told) => made("button", { textContent: told, onclick: () => choose(slot) });
  const told = topic => topic.label || topic.top.slice(0, 3).join(", ");
  let chosen = 0, word = null;

  /** Sievert and Shirley 2014, section 3.1. */
  function relevance(topic, place, lambda) {
    const phi = (topic.counts[place] + data.beta) / topic.mass;
    const share = data.totals[topic.words[place]] / data.tokens;
    return lambda * Math.log(phi) + (1 - lambda) * Math.log(phi / share);
  }

  function mostRelevant(topic, lambda) {
    return topic.words.map((_, place) => [relevance(topic, place, lambda), place])
      .sort((a, b) => b[0] - a[0]).slice(0, data.shown).map(([, place]) => place);
  }

  function wordRow(topic, place, largest) {
    const phi = (topic.counts[place] + data.beta) / topic.mass, number = topic.words[place];
    const button = made("button", { textContent: vocabulary[number], onclick: () => chooseWord(number) });
    button.setAttribute("aria-pressed", number === word);
    const bar = made("span", { className: "bar" });
    bar.style.width = percent(phi / largest);
    return made("li", {}, button, bar,
      made("span", { className: "number", textContent: percent(phi, 2) }),
      made("span", { className: "number", textContent: percent((topic.tokens ?? topic.counts)[place] / data.totals[number], 0) }));
  }

  function showWords() {
    const topic = topics[chosen], lambda = Number(element("lambda").value);
    const places = mostRelevant(topic, lambda);
    const largest = Math.max(...places.map(place => (topic.counts[place] + data.beta) / topic.mass));
    const head = ["word", "", "p(word | topic)", "p(topic | word)"].map(told => made("span", { className: "head", textContent: told }));
    element("lambda-told").textContent = lambda.toFixed(2);
    element("topic-words").replaceChildren(made("li", {}, ...head), ...places.map(place => wordRow(topic, place, largest)));
  }

  function choose(slot) {
    chosen = slot;
    const topic = topics[slot];
    element("topic-title").textContent = `Topic ${topic.topic}: ${told(topic)}`;
    element("topic-size").textContent = `${percent(topic.share, 2)} of all tokens; the dominant topic of ${counted(topic.largest, "document")}, ` +
      `with a share of at least 10% in ${counted(topic.present, "document")}`;
    element("topic-neighbours").replaceChildren(...topic.neighbours.map(([other, r]) =>
      topicButton(other, `${topics[other].topic}: ${told(topics[other])} (${r.toFixed(2)})`)));
    element("topic-documents").replaceChildren(...topic.documents.map(([name, share, tokens, pieces]) =>
      made("li", { title: `${tokens.toLocaleString("en")} tokens` },
        made("span", { className: "note", textContent: `${percent(share, 0)} ` }), name,
        ...(pieces.length ? [made("p", { className: "excerpt" },
          ...pieces.map(([text, marked]) => marked ? made("mark", { textContent: text }) : text))] : []))));
    showWords();
    signal(views, "chosen", slot);
    for (const row of element("topics-table").tBodies[0].rows) row.setAttribute("aria-current", Number(row.dataset.slot) === slot);
  }

  /** Show the topics of a word on the map and as buttons; null clears the choice. */
  function chooseWord(number) {
    word = number === word ? null : number;
    const weights = new Array(topics.length).fill(0);
    if (word !== null) for (const [slot, share] of data.holders[word]) weights[slot] = share;
    signal(views, "weights", word === null ? [] : weights);
    element("found").replaceChildren(...(word === null ? [] : [
      made("span", { className: "note", textContent: `“${vocabulary[word]}”: ${counted(Math.round(data.totals[word] / data.states), "token")} in topics ` }),
      ...data.holders[word].filter(([, share]) => share >= 0.01)
        .map(([slot, share]) => topicButton(slot, `${topics[slot].topic} (${percent(share, 0)})`)),
      made("button", { textContent: "clear", onclick: () => chooseWord(word) }),
    ]));
    showWords();
  }

  /** List words that start with the typed text, then words that contain it; a number also finds the topic of that number. */
  function search(typed) {
    const text = typed.trim().toLowerCase();
    if (!text) return word === null ? chooseWord(null) : chooseWord(word);
    const places = [...vocabulary.keys()].filter(place => vocabulary[place].toLowerCase().includes(text));
    const rank = place => [vocabulary[place].toLowerCase() === text, vocabulary[place].toLowerCase().startsWith(text)];
    places.sort((a, b) => rank(b)[0] - rank(a)[0] || rank(b)[1] - rank(a)[1] || data.totals[b] - data.totals[a]);
    const slot = topics.findIndex(topic => String(topic.topic) === text);
    const small = slot < 0 && /^\d+$/.test(text) && Number(text) < data.all;
    const found = [
      ...(slot < 0 ? [] : [topicButton(slot, `topic ${text}`)]),
      ...(small ? [made("span", { className: "note", textContent: `Topic ${Number(text)} is not one of the ${topics.length} largest topics, which are shown.` })] : []),
      ...places.slice(0, 12).map(place => made("button", { textContent: vocabulary[place], onclick: () => (word = null, chooseWord(place)) })),
    ];
    element("found").replaceChildren(...found.length ? found
      : [made("span", { className: "note", textContent: `“${typed.trim()}” is not a top word of any topic.` })]);
  }

  const step = by => choose((chosen + by + topics.length) % topics.length);
  const keys = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  element("previous").onclick = () => step(-1);
  element("next").onclick = () => step(1);
  element("lambda").oninput = showWords;
  element("word").oninput = event => search(event.target.value);
  element("word").onkeydown = event => {
    if (event.key === "Enter") element("found").querySelector("button")?.click();
  };
  element("topics-map").onkeydown = event => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    step(keys[event.key]);
  };
  element("topics-table").onclick = event => {
    if (event.target.closest("button")) choose(Number(event.target.closest("tr").dataset.slot));
  };
  for (const view of Object.values(views)) {
    view.addEventListener("click", (_, item) => {
      if (item?.datum?.slot !== undefined) choose(item.datum.slot);
    });
  }
  choose(0);
  element("topics").dataset.drawn = "";
});
